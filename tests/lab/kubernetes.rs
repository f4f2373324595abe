//! A **simulated** kubectl, for tests of what takes the nodes of a Kubernetes cluster away, and tests of it. There is no
//! cluster, only a file.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

/// A folder with `kubectl` in it, for the `PATH` of whoever is to find it there.
#[derive(Debug)]
pub(crate) struct Kubectl {
    folder: TempDir,
}

impl Kubectl {
    /// One that knows these nodes, all schedulable.
    pub(crate) fn new(nodes: &[&str]) -> Self {
        let kubectl = Self { folder: TempDir::with_prefix("netplay-lab-kubectl-").unwrap() };
        for name in ["kubectl", "simulated-kubectl"] {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/kubectl.py");
            std::os::unix::fs::symlink(script, kubectl.path().join(name)).unwrap();
        }
        kubectl.setup(&format!("node {}", nodes.join(" ")));
        kubectl
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Changes what it knows: the words of `simulated-kubectl` (docs/lab.md). Returns what that printed.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) fn setup(&self, words: &str) -> String {
        let (code, stdout, stderr) = self.run("simulated-kubectl", words);
        assert_eq!(code, 0, "{stderr}");
        stdout
    }

    /// Exit code and outputs of kubectl.
    pub(crate) fn kubectl(&self, words: &str) -> (i32, String, String) {
        self.run("kubectl", words)
    }

    /// Whether pods may be put on a node.
    pub(crate) fn schedulable(&self, node: &str) -> bool {
        self.kubectl(&format!("get node {node} -o jsonpath={{.spec.unschedulable}}")).1 != "true"
    }

    fn run(&self, program: &str, words: &str) -> (i32, String, String) {
        let output = Command::new(self.path().join(program)).args(words.split(' ')).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn a_node_is_cordoned_drained_and_uncordoned() {
    let kubectl = Kubectl::new(&["gpu1", "gpu2"]);
    kubectl.setup("pod gpu1 default/web-1 pdb=2 ends=1");
    kubectl.setup("pod gpu1 default/scratch emptydir");
    let says = |words| kubectl.kubectl(words);
    let node: serde_json::Value = serde_json::from_str(&says("get node gpu1 -o json").1).unwrap();
    assert_eq!(node["spec"]["unschedulable"], serde_json::Value::Null);
    assert_eq!(node["status"]["conditions"][0]["status"], "True");
    assert!(kubectl.schedulable("gpu1"));

    // What isn't asked for is refused, and the node stays cordoned.
    let (code, stdout, stderr) = says("drain gpu1");
    assert_eq!((code, stdout.as_str()), (1, "node/gpu1 cordoned\n"));
    assert!(stderr.contains("DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"), "{stderr}");
    assert!(stderr.contains("Pods with local storage (use --delete-emptydir-data to override)"), "{stderr}");
    assert!(!kubectl.schedulable("gpu1") && kubectl.schedulable("gpu2"));

    // A disruption budget refuses for two seconds, and the pod takes one to end.
    let start = Instant::now();
    let (code, stdout, stderr) = says("drain gpu1 --ignore-daemonsets --delete-emptydir-data --timeout=1s");
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stderr.contains("it would violate the pod's disruption budget"), "{stderr}");
    assert!(stderr.contains("global timeout reached: 1s"), "{stderr}");
    let (code, stdout, stderr) = says("drain gpu1 --ignore-daemonsets --delete-emptydir-data --timeout=1m");
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.ends_with("pod/web-1 evicted\nnode/gpu1 drained\n"), "{stdout}");
    assert!(start.elapsed().as_secs() >= 3);
    assert_eq!(says("get pods --field-selector spec.nodeName=gpu1").1, "pod/network-gpu1\n");

    assert_eq!(says("cordon gpu1").1, "node/gpu1 already cordoned\n");
    assert_eq!(says("uncordon gpu1").1, "node/gpu1 uncordoned\n");
    assert!(kubectl.schedulable("gpu1"));
}

#[test]
fn what_goes_wrong_is_told_and_each_call_is_noted() {
    let kubectl = Kubectl::new(&["gpu1"]);
    let says = |words| kubectl.kubectl(words);
    let missing = (1, String::new(), "Error from server (NotFound): nodes \"gpu9\" not found\n".to_owned());
    assert_eq!(says("cordon gpu9"), missing);
    assert_eq!(says("get node gpu1 --wide").0, 1);
    kubectl.setup("fault unreachable");
    let (code, _, stderr) = says("drain gpu1 --ignore-daemonsets");
    assert!(code == 1 && stderr.starts_with("The connection to the server "), "{stderr}");
    kubectl.setup("fault");
    assert_eq!(says("drain gpu1 --ignore-daemonsets").0, 0);
    let drain = r#"["drain", "gpu1", "--ignore-daemonsets"]"#;
    let wide = r#"["get", "node", "gpu1", "--wide"]"#;
    assert_eq!(kubectl.setup("calls"), format!("[\"cordon\", \"gpu9\"]\n{wide}\n{drain}\n{drain}\n"));
    assert_eq!(kubectl.setup("calls"), "");
}
