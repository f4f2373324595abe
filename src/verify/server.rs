//! Servers of tests: started for one test each, and never left behind.

use crate::shell::Script;

// A server ends after one test, by its deadline, or when the connection by which it was started is no more: then nobody is
// left to end it. Whose that is tells the first sshd among our ancestors, or else whoever runs us.
const SERVE: &str = r#"command -v "$tool" >/dev/null || { echo "missing $tool"; exit 0; }
field() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$2/status" 2>/dev/null; }
s=$PPID
while :; do
  case $(field Name "$s") in sshd*) break ;; esac
  s=$(field PPid "$s"); [ "${s:-0}" -gt 1 ] || { s=$PPID; break; }
done
listens() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q "$(printf ':%04X 0*:0000 0A ' "$1")"; }
port=$from tries=0
while [ "$servers" -gt 0 ]; do
  while listens "$port"; do port=$((port + 1)); done
  [ "$port" -lt $((from + 200)) ] || { echo 'no port is free'; break; }
  timeout "$bound" "$@" "$port" >/dev/null 2>&1 </dev/null 3>&- 9>&- & p=$!
  ( i=0; while [ $((i += 1)) -le "$bound" ] && [ -d "/proc/$p" ] && [ -d "/proc/$s" ]; do sleep 1; done; kill "$p" ) >/dev/null 2>&1 </dev/null 3>&- 9>&- &
  i=0
  while ! listens "$port" && [ -d "/proc/$p" ] && [ $((i += 1)) -le 50 ]; do sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; done
  if listens "$port"; then
    echo "server $port $p"; servers=$((servers - 1))
  elif [ -d "/proc/$p" ]; then
    kill "$p" 2>/dev/null; echo "it runs, and listens to no port after 5 s"; break
  elif [ $((tries += 1)) -gt 2 ]; then
    # It ends at once, and not because of its port: what it says then is told.
    timeout 5 "$@" "$port" 2>&1 </dev/null | tail -n 5; break
  fi
  port=$((port + 1))
done
exit 0"#;

const END: &str = r#"for p do case $(cat "/proc/$p/comm" 2>/dev/null) in timeout | busybox) kill "$p" 2>/dev/null ;; esac; done; exit 0"#;

/// Servers as another host sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Their ports.
    pub ports: Vec<u16>,
    /// Their processes.
    pub pids: Vec<String>,
    /// Why there are fewer than were wanted: what the server said, by line.
    pub complaint: Vec<String>,
    /// Whether the tool isn't there.
    pub missing: bool,
}

/// Starts so many servers of one test each that listen at this address, for so many seconds at most. `command` takes the port
/// as its last word.
pub fn serve(tool: &str, command: &[&str], from: u16, servers: usize, bound: u32) -> Script {
    Script::new()
        .set("tool", tool)
        .set("from", &from.to_string())
        .set("servers", &servers.to_string())
        .set("bound", &bound.to_string())
        .args(command)
        .line(SERVE)
}

/// What [`serve`] printed.
pub fn served(printed: &str) -> Served {
    let mut served = Served::default();
    for line in printed.lines() {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["server", port, pid] => {
                served.ports.extend(port.parse::<u16>().ok());
                served.pids.push((*pid).to_owned());
            }
            ["missing", _] => served.missing = true,
            _ if line.trim().is_empty() => {}
            _ => served.complaint.extend([line.trim().to_owned()]),
        }
    }
    served
}

/// Ends servers that are left.
pub fn end(pids: &[String]) -> Script {
    Script::new().args(pids).line(END)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;

    #[test]
    fn a_server_listens_before_it_is_told_and_ends_by_itself() {
        for shell in Shell::ALL {
            let setup = "ip link set lo up; timeout 8 busybox nc -l -p 7000 >/dev/null 2>&1 </dev/null & sleep 0.3";
            let script = serve("busybox", &["busybox", "nc", "-l", "-p"], 7000, 2, 2);
            let check = "sleep 4; for p in 7001 7002; do ! listens $p || echo $p; done; echo none";
            let check = format!("{}\n{check}", script.as_str().replace("exit 0", ":"));
            let output = shell.run_in_net(setup, &check);
            let text = output.text();
            let served = served(&text);
            assert_eq!(served.ports, [7001, 7002], "{shell:?}: a port that is taken is passed over: {output:?}");
            assert!(text.ends_with("none\n") && !text.contains("\n700"), "{shell:?}: {text}");
            let output = shell.run_in_net("", serve("nosuchtool", &["nosuchtool"], 7000, 1, 2).as_str());
            assert!(super::served(&output.text()).missing, "{shell:?}");
            let output =
                shell.run_in_net("", serve("sh", &["sh", "-c", "echo no device; exit 1"], 7000, 1, 2).as_str());
            assert_eq!(super::served(&output.text()).complaint, ["no device"], "{shell:?}");
            let hangs = serve("sh", &["sh", "-c", "exec sleep 77"], 7000, 1, 60);
            let left = format!("{}\nsleep 1; pgrep -fx 'sleep 77'", hangs.as_str().replace("exit 0", ":"));
            let output = shell.run_in_net("", &left);
            assert_eq!(
                super::served(&output.text()).complaint,
                ["it runs, and listens to no port after 5 s"],
                "{shell:?}"
            );
        }
    }

    #[test]
    fn servers_are_told_by_their_ports() {
        let served = served("server 5201 17\nserver 5203 19\n");
        assert_eq!(
            (served.ports, served.pids, served.missing),
            (vec![5201, 5203], vec!["17".into(), "19".into()], false)
        );
        assert!(super::served("missing iperf3\n").missing);
        assert_eq!(super::served("no port is free\n").complaint, ["no port is free"]);
    }
}
