//! The variables that say how a host is reached, and names that were meant to be one of them.

use super::Warning;
use crate::error::Error;
use crate::yaml::{Node, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Those that netplay reads.
const READ: &[&str] = &[
    "ansible_become",
    "ansible_become_method",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_connection",
    "ansible_group_priority",
    "ansible_host",
    "ansible_host_key_checking",
    "ansible_password",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_ssh_host",
    "ansible_ssh_host_key_checking",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_ssh_port",
    "ansible_ssh_private_key_file",
    "ansible_ssh_timeout",
    "ansible_ssh_user",
    "ansible_timeout",
    "ansible_user",
    "netplay_transport",
];

/// Those of Ansible's (ansible-core 2.19: `ansible-doc -t connection ssh`, `-t become sudo` and `su`, and the older
/// names) that are so near to one of these that they could be taken for misspelt.
const OTHERS: &[&str] = &[
    "ansible_scp_extra_args",
    "ansible_sftp_extra_args",
    "ansible_ssh_private_key",
    "ansible_su_pass",
    "ansible_sudo_pass",
];

/// A warning for each name that is nearly one of a variable of the connection: nothing would read it, and the host be
/// reached, or not, as if it weren't there. A list or a mapping is none of these.
pub fn misspelt<'v>(vars: impl IntoIterator<Item = (&'v Arc<str>, &'v Node)>) -> Vec<Warning> {
    let mut seen = HashSet::new();
    let mut warnings = Vec::new();
    for (name, value) in vars {
        if !seen.insert(name) || !matches!(value.value, Value::Scalar { .. } | Value::Bool(_)) {
            continue;
        }
        if let Some(meant) = meant(name) {
            let error = Error::inventory(&value.span, format!("nothing reads the variable `{name}`"));
            warnings.push(error.hint(format!("did you mean `{meant}`?")));
        }
    }
    warnings
}

/// The variable that a name that is none of them was meant to be.
fn meant(name: &str) -> Option<&'static str> {
    if READ.contains(&name) || OTHERS.contains(&name) {
        return None;
    }
    let folded = name.to_lowercase().replace('-', "_");
    let near = |known: &&'static str| {
        // One letter of a short name, one more for each eight of a longer one, behind what all begin with.
        let most = 1 + known.split_once('_').map_or(0, |(_, rest)| rest.len() / 8);
        let far = folded.len().abs_diff(known.len()) > most;
        let distance = if far { usize::MAX } else { strsim::damerau_levenshtein(&folded, known) };
        (distance <= most).then_some((distance, *known))
    };
    READ.iter().filter_map(near).min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Source, Span};

    #[test]
    fn what_is_nearly_a_connection_variable_is_told() {
        for (name, known) in [
            ("ansible_hots", "ansible_host"),
            ("ansible_hosts", "ansible_host"),
            ("ansible_prot", "ansible_port"),
            ("ansible_usr", "ansible_user"),
            ("Ansible_User", "ansible_user"),
            ("anisble_host", "ansible_host"),
            ("ansible-host", "ansible_host"),
            ("ansible_becom", "ansible_become"),
            ("ansible_become_passwd", "ansible_become_pass"),
            ("ansible_conection", "ansible_connection"),
            ("ansible_ssh_privat_key_file", "ansible_ssh_private_key_file"),
            ("ansible_ssh_common_arg", "ansible_ssh_common_args"),
            ("netplay_transprot", "netplay_transport"),
        ] {
            assert_eq!(meant(name), Some(known), "{name}");
        }
    }

    #[test]
    fn what_ansible_has_beside_these_is_no_misspelling() {
        for name in READ.iter().chain(OTHERS) {
            assert_eq!(meant(name), None, "{name}");
        }
        // Connection plugins, become plugins, magic variables and facts of ansible-core.
        const REAL: &str = "\
            ansible_become_exe ansible_become_flags ansible_become_prompt_l10n ansible_sudo_exe ansible_sudo_flags \
            ansible_sudo_user ansible_su_exe ansible_su_flags ansible_su ansible_sudo ansible_scp_extra_args \
            ansible_sftp_extra_args ansible_scp_executable ansible_sftp_executable ansible_ssh_executable \
            ansible_ssh_pipelining ansible_pipelining ansible_ssh_retries ansible_ssh_transfer_method \
            ansible_ssh_use_tty ansible_ssh_pkcs11_provider ansible_ssh_private_key_passphrase \
            ansible_private_key_passphrase ansible_private_key ansible_ssh_verbosity ansible_sshpass_prompt \
            ansible_ssh_password_mechanism ansible_sftp_batch_mode ansible_control_path ansible_control_path_dir \
            ansible_ssh_control_path ansible_ssh_proxy_command ansible_paramiko_host_key_checking \
            ansible_paramiko_pty ansible_paramiko_timeout ansible_paramiko_proxy_command ansible_connect_timeout \
            ansible_command_timeout ansible_persistent_command_timeout ansible_winrm_transport ansible_winrm_scheme \
            ansible_psrp_protocol ansible_network_os ansible_python_interpreter ansible_remote_tmp ansible_shell_type \
            ansible_shell_executable ansible_async_dir ansible_docker_extra_args ansible_facts ansible_forks \
            ansible_limit ansible_loop ansible_index_var ansible_version ansible_check_mode ansible_diff_mode \
            ansible_verbosity ansible_playbook_python ansible_play_hosts ansible_play_batch ansible_play_name \
            ansible_role_name ansible_run_tags ansible_skip_tags ansible_inventory_sources ansible_config_file \
            ansible_hostname ansible_fqdn ansible_domain ansible_nodename ansible_kernel ansible_machine ansible_env \
            ansible_dns ansible_lsb ansible_fips ansible_user_id ansible_user_uid ansible_user_gid ansible_user_dir \
            ansible_user_shell ansible_user_gecos ansible_os_family ansible_pkg_mgr ansible_service_mgr \
            ansible_date_time ansible_distribution ansible_interfaces ansible_local ansible_mounts ansible_python \
            ansible_ssh_host_key_rsa_public ansible_ssh_host_key_ed25519_public ansible_iscsi_iqn ansible_hostnqn \
            ansible_host_ip ansible_ib0 ansible_eth0";
        let taken: Vec<_> = REAL.split_whitespace().filter(|name| meant(name).is_some()).collect();
        assert_eq!(taken, [""; 0]);
    }

    #[test]
    fn it_is_told_once_with_its_place() {
        let source = Source::new("hosts", "n1 ansible_hots=10.0.0.1");
        let at = |text: &str| Node::string(&Span::at(&source, 1, 4, 21), text);
        let list = Node::seq(&Span::start(&source), vec![at("x")]);
        let name = |text: &str| -> Arc<str> { text.into() };
        let vars =
            [(name("ansible_hots"), at("10.0.0.1")), (name("ansible_hots"), at("b")), (name("ansible_users"), list)];
        let told: Vec<String> = misspelt(vars.iter().map(|(n, v)| (n, v))).iter().map(ToString::to_string).collect();
        let wanted = "nothing reads the variable `ansible_hots`\n  --> hosts:1:4\n   1 | n1 ansible_hots=10.0.0.1\n     |    \
                      ^^^^^^^^^^^^^^^^^^^^^\n  help: did you mean `ansible_host`?";
        assert_eq!(told, [wanted]);
    }
}
