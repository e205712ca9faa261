//! Descriptors of `.proto` files, for reflection: in builds with the feature `descriptors`.

#[cfg(feature = "descriptors")]
use std::path::Path;
use std::path::PathBuf;

use bytes::Bytes;
#[cfg(feature = "descriptors")]
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};

#[cfg(feature = "descriptors")]
use crate::files::LONGEST_FILE;
#[cfg(feature = "descriptors")]
use crate::table::{HEALTH, REFLECTION_V1, REFLECTION_V1ALPHA};

/// A file whose messages are not known.
#[derive(Debug)]
pub(crate) struct NotCompiled {
    /// The place, as far as it is known, and why.
    pub(crate) why: String,
    /// A step that mends it, for people.
    pub(crate) hint: &'static str,
}

/// The descriptors of those files that compile.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    #[cfg(feature = "descriptors")]
    pool: prost_reflect::DescriptorPool,
}

#[cfg(not(feature = "descriptors"))]
#[expect(
    clippy::unused_self,
    reason = "they are the same in builds that have descriptors"
)]
impl Descriptors {
    pub(crate) fn compile(_: &[PathBuf], _: &[PathBuf]) -> (Self, Vec<NotCompiled>) {
        (Self::default(), Vec::new())
    }

    pub(crate) fn file(&self, _: &str) -> Option<Vec<Bytes>> {
        None
    }

    pub(crate) fn of_symbol(&self, _: &str) -> Option<Vec<Bytes>> {
        None
    }

    pub(crate) fn of_extension(&self, _: &str, _: i32) -> Option<Vec<Bytes>> {
        None
    }

    pub(crate) fn extensions(&self, _: &str) -> Option<Vec<i32>> {
        None
    }
}

/// The services that the server answers itself, and their files.
#[cfg(feature = "descriptors")]
const OWN: [(&str, &str); 3] = [
    (HEALTH, "grpc/health/v1/health.proto"),
    (REFLECTION_V1, "grpc/reflection/v1/reflection.proto"),
    (
        REFLECTION_V1ALPHA,
        "grpc/reflection/v1alpha/reflection.proto",
    ),
];

/// The files of the option `google.api.http`, for programs that do not have them, and those of the
/// server's own services.
#[cfg(feature = "descriptors")]
struct BuiltIn;

#[cfg(feature = "descriptors")]
impl FileResolver for BuiltIn {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let reflection = include_str!("grpc/reflection.proto");
        let source = match name {
            "google/api/annotations.proto" => include_str!("google/annotations.proto"),
            "google/api/http.proto" => include_str!("google/http.proto"),
            "grpc/health/v1/health.proto" => include_str!("grpc/health.proto"),
            "grpc/reflection/v1/reflection.proto" => reflection,
            "grpc/reflection/v1alpha/reflection.proto" => {
                let source = reflection.replace("reflection.v1;", "reflection.v1alpha;");
                return File::from_source(name, &source);
            }
            _ => return Err(protox::Error::file_not_found(name)),
        };
        File::from_source(name, source)
    }
}

/// Looks files up in directories, and then among those that everybody needs.
#[cfg(feature = "descriptors")]
pub(crate) fn resolver(directories: impl Iterator<Item = PathBuf>) -> ChainFileResolver {
    let mut resolver = ChainFileResolver::new();
    for directory in directories {
        resolver.add(IncludeFileResolver::new(directory));
    }
    resolver.add(GoogleFileResolver::new());
    resolver.add(BuiltIn);
    resolver
}

#[cfg(feature = "descriptors")]
impl Descriptors {
    /// Compiles each file by itself; imports are looked up in `paths` and beside it. Gives back
    /// which files do not compile: those are served, and only their names are known.
    pub(crate) fn compile(files: &[PathBuf], paths: &[PathBuf]) -> (Self, Vec<NotCompiled>) {
        let mut pool = prost_reflect::DescriptorPool::new();
        let mut failed = Vec::new();
        for file in files {
            let beside = file.parent().map(Path::to_owned);
            let resolver = resolver(paths.iter().cloned().chain(beside));
            if let Err(error) = add(&mut pool, resolver, file) {
                failed.push(NotCompiled::of(file, &error));
            }
        }
        for (service, file) in OWN {
            // A program may have such a service, or its messages under another name.
            if pool.get_service_by_name(service).is_none() {
                _ = add(&mut pool, BuiltIn, Path::new(file));
            }
        }
        (Self { pool }, failed)
    }

    pub(crate) const fn pool(&self) -> &prost_reflect::DescriptorPool {
        &self.pool
    }

    /// A file and all that it imports.
    pub(crate) fn file(&self, name: &str) -> Option<Vec<Bytes>> {
        self.pool.get_file_by_name(name).map(with_imports)
    }

    /// The file of a service, a method, a message or a field.
    pub(crate) fn of_symbol(&self, name: &str) -> Option<Vec<Bytes>> {
        let file = |name: &str| {
            let pool = &self.pool;
            let service = pool.services().find(|it| it.full_name() == name);
            let service = service.map(|it| it.parent_file());
            let message = || pool.get_message_by_name(name).map(|it| it.parent_file());
            let of_enum = || pool.get_enum_by_name(name).map(|it| it.parent_file());
            let extension = || pool.get_extension_by_name(name).map(|it| it.parent_file());
            service.or_else(message).or_else(of_enum).or_else(extension)
        };
        let outer = || name.rsplit_once('.').and_then(|(outer, _)| file(outer));
        file(name).or_else(outer).map(with_imports)
    }

    pub(crate) fn of_extension(&self, of: &str, number: i32) -> Option<Vec<Bytes>> {
        let message = self.pool.get_message_by_name(of)?;
        let extension = message.get_extension(u32::try_from(number).ok()?)?;
        Some(with_imports(extension.parent_file()))
    }

    pub(crate) fn extensions(&self, of: &str) -> Option<Vec<i32>> {
        let message = self.pool.get_message_by_name(of)?;
        let numbers = message.extensions().map(|it| i32::try_from(it.number()));
        numbers.collect::<Result<_, _>>().ok()
    }
}

/// Compiles a file, and adds it with its imports.
#[cfg(feature = "descriptors")]
fn add(
    pool: &mut prost_reflect::DescriptorPool,
    resolver: impl FileResolver + 'static,
    file: &Path,
) -> Result<(), protox::Error> {
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(false);
    // Encoded: structures would lose options such as `google.api.http`.
    let set = compiler.open_file(file)?.encode_file_descriptor_set();
    Ok(pool.decode_file_descriptor_set(&set[..])?)
}

/// The edition of protobuf that a file is written in: `protox` has none.
#[cfg(feature = "descriptors")]
pub(crate) fn edition(file: &Path) -> Option<String> {
    let text = pronghorn_base::read_linked(file, LONGEST_FILE).ok()?;
    crate::proto::scan(&text).ok()?.edition
}

#[cfg(feature = "descriptors")]
impl NotCompiled {
    fn of(file: &Path, error: &protox::Error) -> Self {
        let shown = file.display();
        if let Some(edition) = edition(file) {
            return Self {
                why: format!("`{shown}`: `edition = \"{edition}\"` is not compiled here"),
                hint: "its calls are served as they are; for more begin it with `syntax = \
                       \"proto3\";`",
            };
        }
        // Its other form has no place.
        let text = format!("{error:?}");
        let named = error.file().filter(|name| file.ends_with(name));
        let placed = named.and_then(|name| text.strip_prefix(name)?.split_once(": "));
        Self {
            why: match placed {
                Some((place, why)) => format!("`{shown}{place}`: {why}"),
                None => format!("`{shown}`: {text}"),
            },
            hint: if error.is_file_not_found() {
                "its calls are served as they are; `protoreg.proto_path` names directories in \
                 which imports are looked up"
            } else {
                "its calls are served as they are; correct the file, and name each one once"
            },
        }
    }
}

#[cfg(feature = "descriptors")]
fn with_imports(file: prost_reflect::FileDescriptor) -> Vec<Bytes> {
    let mut waiting = vec![file];
    let mut seen = std::collections::BTreeSet::new();
    let mut encoded = Vec::new();
    while let Some(file) = waiting.pop() {
        if seen.insert(file.name().to_owned()) {
            encoded.push(Bytes::from(file.encode_to_vec()));
            waiting.extend(file.dependencies());
        }
    }
    encoded
}

#[cfg(all(test, feature = "descriptors"))]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn what_compiles_is_known_with_its_imports_and_the_rest_is_told() {
        let directory = Directory::new();
        let common = "syntax = \"proto3\"; package c; message Shared { int32 a = 1; }";
        let good = "syntax = \"proto3\"; package a.b; import \"common/c.proto\"; \
                    import \"google/protobuf/empty.proto\"; message M { c.Shared s = 1; } \
                    service S { rpc Do(M) returns (google.protobuf.Empty); }";
        let bad = "syntax = \"proto3\"; import \"google/missing.proto\"; service T {}";
        std::fs::create_dir_all(directory.join("shared/common")).unwrap();
        directory.write("shared/common/c.proto", common);
        directory.write("good.proto", good);
        directory.write("bad.proto", bad);
        let files = ["good.proto", "bad.proto"].map(|name| directory.join(name));
        let (descriptors, failed) = Descriptors::compile(&files, &[directory.join("shared")]);
        assert_eq!(failed.len(), 1);
        let place = format!("`{}:1:20`: ", directory.join("bad.proto").display());
        assert!(failed[0].why.starts_with(&place), "{failed:?}");
        assert!(failed[0].hint.contains("protoreg.proto_path"), "{failed:?}");
        for symbol in ["a.b.S", "a.b.S.Do", "a.b.M", "a.b.M.s"] {
            let files = descriptors.of_symbol(symbol).unwrap();
            assert_eq!(files.len(), 3, "{symbol}");
        }
        assert!(descriptors.of_symbol("T").is_none());
        assert_eq!(descriptors.file("common/c.proto").unwrap().len(), 1);
    }

    #[test]
    fn services_of_the_server_are_known_unless_files_have_them() {
        let (descriptors, failed) = Descriptors::compile(&[], &[]);
        assert!(failed.is_empty(), "{failed:?}");
        for (service, file) in OWN {
            let files = descriptors.of_symbol(service).expect(service);
            assert_eq!(files.len(), 1, "{service}");
            assert_eq!(descriptors.file(file), Some(files));
        }
        let directory = Directory::new();
        let text = "syntax = \"proto3\"; package grpc.health.v1; message Own {} \
                    service Health { rpc Check(Own) returns (Own); }";
        directory.write("own.proto", text);
        let (descriptors, failed) = Descriptors::compile(&[directory.join("own.proto")], &[]);
        assert!(failed.is_empty(), "{failed:?}");
        assert!(descriptors.of_symbol("grpc.health.v1.Own").is_some());
        assert!(descriptors.file("grpc/health/v1/health.proto").is_none());
    }

    #[test]
    fn proto2_compiles_and_editions_are_named() {
        let directory = Directory::new();
        let old = "syntax = \"proto2\"; package a; message M { required int32 i = 1 \
                   [default = 3]; optional group G = 2 { optional M m = 1; } extensions 10 to 20; } \
                   extend M { optional string s = 10; } service S { rpc Do(M) returns (M); }";
        directory.write("old.proto", old);
        directory.write("older.proto", "message N { optional int32 i = 1; }");
        let new = "edition = \"2023\"; package b; message M {}";
        directory.write("new.proto", new);
        let files = ["old.proto", "older.proto", "new.proto"].map(|name| directory.join(name));
        let (descriptors, failed) = Descriptors::compile(&files, &[]);
        assert!(descriptors.of_symbol("a.S").is_some() && descriptors.of_symbol("N").is_some());
        assert!(descriptors.of_extension("a.M", 10).is_some());
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].why.contains("`edition = \"2023\"`"), "{failed:?}");
    }
}
