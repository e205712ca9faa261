//! `grpc generate`: PHP code of `.proto` files.

use std::fs;
use std::io;
use std::path::Path;

use pronghorn_base::read_linked;
use pronghorn_config::{Section, Table, load};
use pronghorn_grpc::{Door, GeneratedFile, GrpcService, MARK, Shape, Wanted, generate};

use crate::arguments::{Arguments, Generate};
use crate::directories::{disk_hint, replace, working, write_new};
use crate::exit::{Exit, failed, mention, misused, say};

/// Longer files are none of this command's.
const LONGEST_FILE: u64 = 16 << 20;

/// The one section that is needed: a mistake elsewhere keeps nobody from generating code.
struct GrpcAlone(Option<GrpcService>);

impl Section for GrpcAlone {
    fn read(t: &mut Table<'_>) -> Self {
        Self(GrpcService::read(t, Door::default()))
    }
}

pub(crate) fn run(arguments: &Arguments, options: &Generate) -> Exit {
    let wanted = match wanted(arguments, options) {
        Ok(wanted) => wanted,
        Err(why) => return misused(&why),
    };
    let files = match generate(&wanted) {
        Ok(files) => files,
        Err(error) => return misused(&format!("{error}\nhint: {}", error.hint())),
    };
    let out = working(arguments, None).join(&options.out);
    match write(&files, &out, &options.out) {
        Ok(written) => {
            let unchanged = match files.len() - written {
                0 => String::new(),
                unchanged => format!(", {unchanged} unchanged"),
            };
            if !arguments.globals.silent {
                let files = if written == 1 { "file" } else { "files" };
                let out = options.out.display();
                mention(&format!(
                    "{written} {files} written to `{out}`{unchanged}\n"
                ));
            }
            Exit::Done
        }
        Err(why) => failed(&why),
    }
}

/// The files on the command line, else those of the configuration.
fn wanted(arguments: &Arguments, options: &Generate) -> Result<Wanted, String> {
    let shape = if options.roadrunner {
        Shape::RoadRunner
    } else {
        Shape::Pronghorn
    };
    let here = working(arguments, None);
    let typed: Vec<_> = options.paths.iter().map(|path| here.join(path)).collect();
    let typed_paths = options.paths.iter().zip(&typed);
    if let Some((name, path)) = typed_paths.into_iter().find(|(_, path)| !path.is_dir()) {
        return Err(format!(
            "`--proto-path {}`: there is no directory `{}`\n\
             hint: name one in which imports begin, for example `--proto-path proto`",
            name.display(),
            path.display()
        ));
    }
    let input = arguments.input();
    let file = input.main_file();
    let configured = load(&input).resolve_part::<GrpcAlone>().into_settings();
    let configured = configured.map(|alone| alone.0.map(|service| service.settings));
    let directory = working(arguments, file.as_deref());
    let known = configured.as_ref().ok().and_then(Option::as_ref);
    let known = known.map(|grpc| grpc.proto_path.iter().map(|path| directory.join(path)));
    let paths = match &typed[..] {
        [] => known.into_iter().flatten().collect(),
        typed => typed.to_vec(),
    };
    if !options.files.is_empty() {
        return Ok(Wanted {
            proto: options.files.clone(),
            directory: here,
            paths,
            shape,
        });
    }
    let proto = match configured {
        Ok(grpc) => grpc.map(|grpc| grpc.proto).unwrap_or_default(),
        Err(report) => return Err(format!("the configuration has mistakes\n{report}")),
    };
    if proto.is_empty() {
        return Err(
            "there are no `.proto` files: the configuration has no `grpc.proto`\n\
             hint: name them, for example `pronghorn grpc generate proto/*.proto`"
                .to_owned(),
        );
    }
    Ok(Wanted {
        proto,
        directory,
        paths,
        shape,
    })
}

/// Writes the files that have changed, and says which; gives their number. Nothing is written if
/// one of them is in the place of a file that somebody else wrote.
fn write(files: &[GeneratedFile], out: &Path, shown: &Path) -> Result<usize, String> {
    let mut changed = Vec::new();
    for file in files {
        let path = out.join(&file.path);
        match read_linked(&path, LONGEST_FILE) {
            Ok(there) if there == file.text.as_bytes() => {}
            Ok(there) if !there.starts_with(MARK.as_bytes()) => return Err(foreign(file, shown)),
            Ok(_) => changed.push((path, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => changed.push((path, file)),
            Err(error) => return Err(unwritten(&shown.join(&file.path), &error)),
        }
    }
    for (path, file) in &changed {
        let name = shown.join(&file.path);
        let directory = path.parent().unwrap_or(out);
        // A worker may load the file meanwhile.
        let replaced = |()| replace(path, |new| write_new(new, &file.text));
        let written = fs::create_dir_all(directory).and_then(replaced);
        written.map_err(|error| unwritten(&name, &error))?;
        say(&format!("{}\n", name.display()));
    }
    Ok(changed.len())
}

fn foreign(file: &GeneratedFile, shown: &Path) -> String {
    format!(
        "`{}` was not written by this command, which would replace it\n\
         hint: remove it, or name another directory with `--out DIR`",
        shown.join(&file.path).display()
    )
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    let hint = disk_hint(path, error);
    let hint = hint.unwrap_or_else(|| "`--out DIR` names another directory".to_owned());
    format!("cannot write `{}`: {error}\nhint: {hint}", path.display())
}
