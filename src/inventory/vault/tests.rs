//! What `ansible-vault` has encrypted, and what may be wrong with it. The files of `tests/cases/vault` are its own.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

fn case(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/vault").join(path)
}

fn both() -> Vault {
    let mut vault = Vault::default();
    vault.add_file(None, case("password").to_str().unwrap()).unwrap();
    vault.add_file(Some("dev"), case("password-dev").to_str().unwrap()).unwrap();
    vault
}

fn with(password: &str) -> Vault {
    let mut vault = Vault::default();
    vault.add(None, password).unwrap();
    vault
}

fn value(text: &str) -> Node {
    let source = Source::new("h.yaml", "a: 1\nb: !vault …\n");
    Node { tag: Some("!vault".into()), ..Node::string(&Span::at(&source, 2, 4, 6), text) }
}

#[test]
fn what_ansible_vault_wrote_is_read() {
    let vault = both();
    let mut count = 0;
    for entry in fs::read_dir(case("plain/texts")).unwrap() {
        let plain = entry.unwrap().path();
        let name = plain.file_name().unwrap().to_str().unwrap();
        let sealed = fs::read(case("sealed/texts").join(name.trim_end_matches(".dev"))).unwrap();
        let Ok((opened, true)) = vault.bytes(name, sealed) else { panic!("{name}") };
        assert_eq!(opened, fs::read(&plain).unwrap(), "{name}");
        let marked =
            [b"\xef\xbb\xbf", &*fs::read(case("sealed/texts").join(name.trim_end_matches(".dev"))).unwrap()].concat();
        let Ok((opened, true)) = vault.bytes(name, marked) else { panic!("{name} behind a byte order mark") };
        assert_eq!(opened, fs::read(&plain).unwrap(), "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
    assert_eq!(vault.bytes("x", b"$ANSIBLE".to_vec()).ok(), Some((b"$ANSIBLE".to_vec(), false)));
}

#[test]
fn a_password_of_another_label_is_tried_too() {
    let sealed = fs::read(case("sealed/texts/labelled")).unwrap();
    assert!(sealed.starts_with(b"$ANSIBLE_VAULT;1.2;AES256;dev\n"));
    assert!(with("battery staple").bytes("x", sealed).is_ok());
}

#[test]
fn what_was_opened_is_a_secret() {
    let vault = both();
    assert!(vault.secrets().is_empty());
    vault.bytes("x", fs::read(case("sealed/texts/labelled")).unwrap()).ok().unwrap();
    assert_eq!(vault.secrets().redact("<labelled by dev>"), "<(secret)>");
    assert!(!format!("{vault:?}").contains("battery"));
    let source = Source::decrypted(
        "v.yaml",
        "a: ['template {{ x }} of-two-parts', 1, yes]\nkey-of-it: \"{#c#}%plain-text-of-it\"\n",
    );
    vault.conceal(&yaml::load_one(&source, Kind::Playbook).unwrap().unwrap());
    assert_eq!(
        vault.secrets().redact("template = of-two-parts key-of-it %plain-text-of-it x 1 yes"),
        "(secret) = (secret) key-of-it (secret) x 1 yes"
    );
}

#[test]
fn the_same_is_opened_once() {
    let text = fs::read_to_string(case("sealed/texts/short")).unwrap();
    let vault = with("correct horse");
    let node = value(&text);
    let first = std::time::Instant::now();
    assert_eq!(vault.open(&node).unwrap().text(), Some("x"));
    let first = first.elapsed();
    let others = std::time::Instant::now();
    for _ in 0..10_000 {
        assert_eq!(vault.open(&node).unwrap().as_str(), Some("x"));
    }
    assert_eq!(vault.opened.lock().unwrap().len(), 1);
    // 10,000 derivations would take 10,000 times as long as the first one.
    assert!(others.elapsed() < first * 1000, "{first:?}, then {:?}", others.elapsed());
    // Nor is a password that doesn't fit tried again.
    let vault = with("wrong");
    let told = vault.open(&node).unwrap_err().to_string();
    assert_eq!(vault.open(&node).unwrap_err().to_string(), told);
}

#[test]
fn what_is_wrong_is_told_at_its_place() {
    let good = fs::read_to_string(case("sealed/texts/short")).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let broken = |text: &str| with("correct horse").open(&value(text)).unwrap_err().to_string();
    let place = "\n  --> h.yaml:2:4\n   2 | b: !vault …\n     |    ^^^^^^\n  help: ";
    for (text, why) in [
        ("$ANSIBLE_VAULT", "it doesn't begin with a line such as `$ANSIBLE_VAULT;1.1;AES256`"),
        ("hunter2", "it doesn't begin with a line such as `$ANSIBLE_VAULT;1.1;AES256`"),
        ("$ANSIBLE_VAULT;1.1;AES\n31", "its cipher `AES` isn't known; known: AES256"),
        ("$ANSIBLE_VAULT;1.3;AES256\n31", "its format has the version `1.3`; known: 1.1, 1.2"),
        ("$ANSIBLE_VAULT;1.1;AES256\n", "nothing follows its first line"),
        ("$ANSIBLE_VAULT;1.1;AES256\n31x2", "behind its first line, character 3 is `x` and no hexadecimal digit"),
        (
            "$ANSIBLE_VAULT;1.1;AES256\n313",
            "behind its first line, the number of hexadecimal digits is odd: it is cut off",
        ),
        ("$ANSIBLE_VAULT;1.1;AES256\n3132", "it is cut off: salt, HMAC and ciphertext are not all there"),
        ("$ANSIBLE_VAULT;1.1;AES256\n31310a31310a3131", "its HMAC has 1 bytes and not 32"),
        (&lines[..lines.len() - 2].join("\n"), "it is cut off: salt, HMAC and ciphertext are not all there"),
        (&lines[..lines.len() - 1].join("\n"), "it is cut off: 15 bytes of ciphertext aren't whole blocks of 16"),
    ] {
        let told = broken(text);
        assert!(told.starts_with(&format!("this encrypted value is broken: {why}")), "{text}\n{told}");
        assert!(told.contains(place), "{told}");
    }
    // A digit of salt, HMAC or ciphertext is another one: that can't be told from another password.
    for line in 1..lines.len() {
        let mut changed: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
        let other = if changed[line].ends_with('1') { "2" } else { "1" };
        changed[line].pop();
        changed[line].push_str(other);
        let told = broken(&changed.join("\n"));
        assert!(
            told.starts_with("the vault password (`default`) doesn't open this value") || told.contains("broken"),
            "{told}"
        );
    }
    let told = with("wrong").open(&value(&good)).unwrap_err().to_string();
    assert!(told.starts_with("the vault password (`default`) doesn't open this value\n  --> h.yaml:2:4"), "{told}");
    assert!(told.contains("the password is another one, or what is here was changed since it was encrypted"), "{told}");
    let told = Vault::default().open(&value(&good)).unwrap_err().to_string();
    assert!(told.starts_with("this value is encrypted, and no vault password is given\n  --> h.yaml:2:4"), "{told}");
    assert!(told.contains("--vault-password-file FILE, --vault-id default@FILE, or --ask-vault-pass"), "{told}");
    let labelled = fs::read(case("sealed/texts/labelled")).unwrap();
    let told = Error::from(Vault::default().bytes("f.yml", labelled.clone()).err().unwrap()).to_string();
    assert!(told.starts_with("this file is encrypted by the password `dev`, and no vault password"), "{told}");
    assert!(told.contains("f.yml:1:1\n") && told.contains("--vault-id dev@FILE"), "{told}");
    let mut two = with("a");
    two.add(Some("prod"), "b").unwrap();
    let told = Error::from(two.bytes("f.yml", labelled).err().unwrap()).to_string();
    let first = "none of the vault passwords (default, prod) opens this file; it was encrypted by the one called `dev`";
    assert!(told.starts_with(first), "{told}");
    let node = Node { tag: Some("!vault".into()), ..Node::seq(&value("").span, Vec::new()) };
    assert!(two.open(&node).unwrap_err().to_string().starts_with("`!vault` stands before a list"));
    for (text, what) in [("- !vault {a: 1}", "a mapping"), ("x: {y: !vault [1]}", "a list")] {
        let node = yaml::load_one(&Source::new("x", text), Kind::Inventory).unwrap().unwrap();
        let told = two.open_all(&node).unwrap_err().to_string();
        assert!(told.starts_with(&format!("`!vault` stands before {what}")), "{told}");
    }
}

#[test]
fn wrong_padding_is_told() {
    // Made by us: what has the right HMAC has the right padding, unless something else wrote it.
    let (password, salt) = ("p", [7; 32]);
    let mut keys = [0; 80];
    pbkdf2::pbkdf2::<Hmac<Sha256>>(password.as_bytes(), &salt, ROUNDS, &mut keys).unwrap();
    let mut ciphertext = *b"0123456789abcde\x03";
    ctr::Ctr128BE::<Aes256>::new_from_slices(&keys[..32], &keys[64..]).unwrap().apply_keystream(&mut ciphertext);
    let mut mac = Hmac::<Sha256>::new_from_slice(&keys[32..64]).unwrap();
    mac.update(&ciphertext);
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let inner = [hex(&salt), hex(&mac.finalize().into_bytes()), hex(&ciphertext)].join("\n");
    let text = format!("$ANSIBLE_VAULT;1.1;AES256\n{}\n", hex(inner.as_bytes()));
    let told = with(password).open(&value(&text)).unwrap_err().to_string();
    assert!(told.starts_with("this encrypted value is broken: its padding is wrong\n"), "{told}");
}

#[test]
fn passwords_come_from_files_and_programs() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let password = |path: &str, label: Option<&str>| {
        let mut vault = with("correct horse");
        vault.add_file(label, path).map(|()| vault.passwords.pop().unwrap())
    };
    let (label, secret) = password(&file("plain", "\n  a b \r\n", 0o600), None).unwrap();
    assert_eq!((&*label, secret.reveal()), ("default", "a b"));
    let (_, secret) =
        password(&file("run.sh", "#!/bin/sh\nprintf 'from a program\\r\\n'; echo $#\n", 0o700), Some("x")).unwrap();
    assert_eq!(secret.reveal(), "from a program\r\n0");
    let (label, secret) = password(&file("get-client.py", "#!/bin/sh\necho \"$@\"\n", 0o700), Some("dev")).unwrap();
    assert_eq!((&*label, secret.reveal()), ("dev", "--vault-id dev"));
    // One that is encrypted itself, by a password that came before.
    let sealed = fs::read_to_string(case("sealed/texts/labelled")).unwrap();
    assert!(password(&file("sealed", &sealed, 0o600), None).unwrap_err().to_string().starts_with("the vault password"));
    let sealed = fs::read_to_string(case("sealed/texts/short")).unwrap();
    assert_eq!(password(&file("sealed", &sealed, 0o600), None).unwrap().1.reveal(), "x");
    for (path, why) in [
        (file("empty", " \n", 0o600), "empty has no password"),
        (file("fails", "#!/bin/sh\nexit 3\n", 0o700), "fails failed: exit status: 3"),
        (file("no-client", "#!/bin/sh\nexit 2\n", 0o700), "no-client knows no password `default` (exit code 2)"),
        (file("text", "a password\n", 0o700), "if it holds the password, `chmod -x` it"),
        (dir.path().join("none").display().to_string(), "none doesn't exist"),
        (dir.path().display().to_string(), "is a folder"),
    ] {
        let told = password(&path, None).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
    assert_eq!(
        Identity::parse("dev@~/x@y"),
        Identity { label: Some("dev".to_owned()), source: PasswordSource::File("~/x@y".to_owned()) }
    );
    assert_eq!(Identity::parse("prompt"), Identity { label: None, source: PasswordSource::Prompt });
    assert_eq!(Identity::parse("a@prompt").source, PasswordSource::Prompt);
}
