//! `trust`: the system's store takes the local authority, or loses it.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pronghorn_base::read_plain;

use crate::arguments::{Arguments, Trust};
use crate::authority::{Authority, LONGEST_FILE, NAME};
use crate::directories;
use crate::exit::{Exit, failed, misused, say};

/// A system's store: the folder of what an administrator adds, and the command that applies it.
struct Store {
    folder: &'static str,
    command: &'static [&'static str],
}

const STORES: [Store; 4] = [
    // Debian, Ubuntu, Alpine
    Store {
        folder: "/usr/local/share/ca-certificates",
        command: &["update-ca-certificates"],
    },
    // Fedora, Red Hat
    Store {
        folder: "/etc/pki/ca-trust/source/anchors",
        command: &["update-ca-trust", "extract"],
    },
    // Arch
    Store {
        folder: "/etc/ca-certificates/trust-source/anchors",
        command: &["trust", "extract-compat"],
    },
    // SUSE
    Store {
        folder: "/usr/share/pki/trust/anchors",
        command: &["update-ca-certificates"],
    },
];

pub(crate) fn run(arguments: &Arguments, options: &Trust) -> Exit {
    let authority = match Authority::of(arguments) {
        Ok(authority) => authority,
        Err(why) => return failed(&why),
    };
    let Some((folder, command)) = place(options.into.as_deref()) else {
        return failed(&format!(
            "no store of this system is known: none of {} is there\n\
                 hint: `--into DIR` names its folder; then run what applies it",
            STORES.map(|store| store.folder).join(", ")
        ));
    };
    if options.remove {
        remove(&authority, &folder, command)
    } else {
        install(&authority, &folder, command)
    }
}

/// The folder, and the command that applies what is in it; none where a person named the folder.
fn place(into: Option<&Path>) -> Option<(PathBuf, &'static [&'static str])> {
    if let Some(into) = into {
        return Some((directories::current().join(into), &[]));
    }
    let store = STORES
        .iter()
        .find(|store| Path::new(store.folder).is_dir())?;
    Some((store.folder.into(), store.command))
}

/// Each authority has a file of its own: machines have several users.
fn file_in(folder: &Path, certificate: &[u8]) -> PathBuf {
    // FNV-1a; it tells files apart, and proves nothing.
    let sum = certificate
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    folder.join(format!("pronghorn-{sum:016x}.crt"))
}

fn install(authority: &Authority, folder: &Path, command: &'static [&'static str]) -> Exit {
    let certificate = match authority.certificate() {
        Ok(certificate) => certificate,
        Err(why) => return failed(&why),
    };
    let text = match read_plain(&certificate, LONGEST_FILE) {
        Ok(text) => text,
        Err(error) => {
            return failed(&format!(
                "`{}` can't be read: {error}",
                certificate.display()
            ));
        }
    };
    let file = file_in(folder, &text);
    if let Err(error) = put(&file, &text) {
        let by_hand = format!(
            "sudo install -m 644 '{}' '{}'{}",
            certificate.display(),
            file.display(),
            then(command)
        );
        return unwritable(folder, &error, &by_hand);
    }
    if let Err(why) = apply(command) {
        return failed(&why);
    }
    say(&format!("`{NAME}` is trusted: {}\n", file.display()));
    say(&format!(
        "Browsers have stores of their own: close them, then `certutil -d sql:$HOME/.pki/nssdb -A -t C,, \
         -n '{NAME}' -i '{}'` for Chromium (certutil is in libnss3-tools); Firefox takes the file in \
         its settings, under certificates\n",
        certificate.display()
    ));
    Exit::Done
}

/// Whole, and readable for everybody whatever the umask says, or not at all.
fn put(file: &Path, text: &[u8]) -> io::Result<()> {
    directories::replace(file, |new| {
        std::fs::File::create_new(new)?.write_all(text)?;
        std::fs::set_permissions(new, PermissionsExt::from_mode(0o644))
    })
}

fn remove(authority: &Authority, folder: &Path, command: &'static [&'static str]) -> Exit {
    let Some(certificate) = authority.existing() else {
        return misused(
            "there is no local authority here\nhint: `-c FILE` or `-w DIR` names the server that has it",
        );
    };
    let text = read_plain(&certificate, LONGEST_FILE).unwrap_or_default();
    let file = file_in(folder, &text);
    match std::fs::remove_file(&file) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            say(&format!("`{NAME}` of this server was not trusted\n"));
            return Exit::Done;
        }
        Err(error) => {
            let by_hand = format!("sudo rm '{}'{}", file.display(), then(command));
            return unwritable(folder, &error, &by_hand);
        }
    }
    if let Err(why) = apply(command) {
        return failed(&why);
    }
    say(&format!(
        "`{NAME}` is not trusted any more; for Chromium: `certutil -d sql:$HOME/.pki/nssdb -D -n '{NAME}'`\n"
    ));
    Exit::Done
}

fn then(command: &[&str]) -> String {
    if command.is_empty() {
        return String::new();
    }
    format!(" && sudo {}", command.join(" "))
}

fn unwritable(folder: &Path, error: &io::Error, by_hand: &str) -> Exit {
    let hint = directories::disk_hint(folder, error);
    let hint = hint.unwrap_or_else(|| format!("type `{by_hand}`"));
    failed(&format!(
        "`{}` can't be written: {error}\nhint: {hint}",
        folder.display()
    ))
}

fn apply(command: &[&str]) -> Result<(), String> {
    let [program, arguments @ ..] = command else {
        return Ok(());
    };
    let ran = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match ran {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}` ended with {status}", command.join(" "))),
        Err(error) => Err(format!(
            "`{}` can't be run: {error}\nhint: `apt install ca-certificates` for instance, then `pronghorn trust` again",
            command.join(" ")
        )),
    }
}
