//! PHP code of `.proto` files: messages and enums as `protoc --php_out` writes them, which the
//! package or the extension `google/protobuf` runs, and interfaces of services.

mod file;
mod interface;
mod message;
mod names;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use prost_reflect::{
    DescriptorPool, EnumDescriptor, FileDescriptor, Kind, MessageDescriptor, ServiceDescriptor,
    Syntax,
};
use protox::Compiler;

use crate::descriptors::{edition, resolver};
use crate::files;
use crate::generated::{GenerateError, GeneratedFile, Shape, Wanted};

/// The files whose classes are in `google/protobuf`.
const RUNTIME: &str = "google/protobuf/";
/// `protoc` refuses others for PHP as well: Google's runtime has no required fields, groups or
/// extensions.
const PROTO3: &str = "PHP code is made of proto3 alone";
/// The step that mends it.
const BEGIN: &str = "begin the file with `syntax = \"proto3\";`";
/// The file of options has no class there.
const OPTIONS: &str = "google/protobuf/descriptor.proto";

/// Generates the code of files and of all that they import, but for what the runtime has.
pub fn generate(wanted: &Wanted) -> Result<Vec<GeneratedFile>, GenerateError> {
    let mut code = Code {
        shape: wanted.shape,
        files: BTreeMap::new(),
        done: BTreeSet::new(),
    };
    let (pool, roots) = compile(wanted)?;
    let mut waiting: Vec<_> = roots
        .iter()
        .filter_map(|name| pool.get_file_by_name(name))
        .collect();
    while let Some(file) = waiting.pop() {
        let is_there = file.name().starts_with(RUNTIME);
        if !is_there && code.done.insert(file.name().to_owned()) {
            waiting.extend(code.add(&file)?);
        }
    }
    Ok(code.files.into_values().map(|(_, file)| file).collect())
}

/// Compiles the files; gives them by their names as well.
fn compile(wanted: &Wanted) -> Result<(DescriptorPool, Vec<String>), GenerateError> {
    let mut found = Vec::new();
    for name in &wanted.proto {
        let paths = files::paths(name, &wanted.directory)?;
        if !paths.iter().all(|path| path.is_file()) || paths.is_empty() {
            return Err(GenerateError::NoFiles(name.clone()));
        }
        found.extend(paths);
    }
    let mut beside: Vec<PathBuf> = found
        .iter()
        .filter_map(|it| Some(it.parent()?.into()))
        .collect();
    // A file is known by its name in the outermost directory: so others import it.
    beside.sort_by_key(|directory| directory.components().count());
    beside.dedup();
    let paths = wanted.paths.iter().map(|path| wanted.directory.join(path));
    let mut compiler = Compiler::with_file_resolver(resolver(paths.chain(beside)));
    compiler.include_imports(true).include_source_info(true);
    for path in &found {
        compiler
            .open_file(path)
            .map_err(|error| match edition(path) {
                Some(edition) => GenerateError::Unfit {
                    file: path.display().to_string(),
                    why: format!("has `edition = \"{edition}\"`, and {PROTO3}"),
                    hint: BEGIN.to_owned(),
                },
                None => failed(&error),
            })?;
    }
    let names = compiler.files().filter(|file| !file.is_import());
    let names = names.map(|file| file.name().to_owned()).collect();
    let mut pool = DescriptorPool::new();
    let set = compiler.encode_file_descriptor_set();
    let added = pool.decode_file_descriptor_set(&set[..]);
    added.map_err(|error| failed(&error.into()))?;
    Ok((pool, names))
}

fn failed(error: &protox::Error) -> GenerateError {
    GenerateError::Compile {
        // Its other form has no place.
        text: format!("{error:?}"),
        lacks_import: error.is_file_not_found(),
    }
}

/// The generated files so far.
struct Code {
    shape: Shape,
    /// By their names in small letters, in which PHP and some file systems see no difference; each
    /// with what it is made of.
    files: BTreeMap<String, (String, GeneratedFile)>,
    done: BTreeSet<String>,
}

impl Code {
    /// Adds the classes of a file. Gives back the files that they need.
    fn add(&mut self, file: &FileDescriptor) -> Result<Vec<FileDescriptor>, GenerateError> {
        if file.syntax() != Syntax::Proto3 {
            let why = format!("has no `syntax = \"proto3\"`, and {PROTO3}");
            return Err(unfit(file, &why, BEGIN));
        }
        let types = Types::of(file);
        let comments = text::Comments::of(file);
        let needed = needed(file, &types)?;
        let of_file = || format!("the file `{}`", file.name());
        self.put(file, of_file(), file::metadata(file, &needed))?;
        for of in &types.messages {
            let class = message::message(of, &comments);
            let hint = "give one of them another name";
            let class = class.map_err(|why| unfit(file, &why, hint))?;
            self.put(file, format!("the message `{}`", of.full_name()), class)?;
        }
        for of in &types.enums {
            let class = file::enumeration(of, &comments);
            self.put(file, format!("the enum `{}`", of.full_name()), class)?;
        }
        for of in &types.services {
            let class = interface::interface(of, &comments, self.shape);
            self.put(file, format!("the service `{}`", of.full_name()), class)?;
        }
        Ok(needed)
    }

    fn put(
        &mut self,
        file: &FileDescriptor,
        of: String,
        class: GeneratedFile,
    ) -> Result<(), GenerateError> {
        let path = class.path.trim_end_matches(".php");
        if !names::is_class(&path.replace('/', "\\")) {
            let why = format!(
                "{of} would be the class `{}`, which PHP does not take",
                path.replace('/', "\\")
            );
            let hint = "correct `php_namespace`, `php_class_prefix` or `php_metadata_namespace`, \
                        or give the file another name";
            return Err(unfit(file, &why, hint));
        }
        if let Some((other, _)) = self.files.get(&path.to_ascii_lowercase()) {
            let why = format!("{of} and {other} would be in one file, `{}`", class.path);
            return Err(unfit(file, &why, "give one of them another name"));
        }
        self.files.insert(path.to_ascii_lowercase(), (of, class));
        Ok(())
    }
}

fn unfit(file: &FileDescriptor, why: &str, hint: &str) -> GenerateError {
    GenerateError::Unfit {
        file: file.name().to_owned(),
        why: why.to_owned(),
        hint: hint.to_owned(),
    }
}

/// The types and services that a file declares.
struct Types {
    messages: Vec<MessageDescriptor>,
    enums: Vec<EnumDescriptor>,
    services: Vec<ServiceDescriptor>,
}

impl Types {
    fn of(file: &FileDescriptor) -> Self {
        let mut enums: Vec<_> = file.enums().collect();
        let mut messages = Vec::new();
        let mut waiting: Vec<_> = file.messages().collect();
        while let Some(message) = waiting.pop() {
            waiting.extend(message.child_messages());
            enums.extend(message.child_enums());
            // Maps are fields for PHP.
            if !message.is_map_entry() {
                messages.push(message);
            }
        }
        Self {
            messages,
            enums,
            services: file.services().collect(),
        }
    }
}

/// The imports of a file that PHP needs. One that has options, of which the file uses no type, is
/// left out: so nobody needs the classes of `google/api/annotations.proto`.
fn needed(file: &FileDescriptor, types: &Types) -> Result<Vec<FileDescriptor>, GenerateError> {
    let fields = types.messages.iter().flat_map(MessageDescriptor::fields);
    let fields = fields.flat_map(|field| match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => vec![entry.map_entry_value_field().kind()],
        kind => vec![kind],
    });
    let of_fields = fields.filter_map(|kind| match kind {
        Kind::Message(message) => Some(message.parent_file()),
        Kind::Enum(of) => Some(of.parent_file()),
        _ => None,
    });
    let methods = types.services.iter().flat_map(ServiceDescriptor::methods);
    let of_methods = methods.flat_map(|it| [it.input().parent_file(), it.output().parent_file()]);
    let used = of_fields
        .chain(of_methods)
        .map(|file| file.name().to_owned());
    let used: BTreeSet<String> = used.collect();
    if used.contains(OPTIONS) {
        let why = format!("uses types of `{OPTIONS}`, which have no classes in PHP");
        return Err(unfit(file, &why, "use types of other files"));
    }
    let is_for_options = |import: &FileDescriptor| {
        import.extensions().len() > 0
            && import.public_dependencies().len() == 0
            && !used.contains(import.name())
    };
    let imports = file.dependencies();
    let needed = imports.filter(|import| import.name() != OPTIONS && !is_for_options(import));
    Ok(needed.collect())
}
