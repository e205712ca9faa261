//! Descriptors of `.proto` files, for reflection: in builds with the feature `descriptors`.

use std::path::PathBuf;

use bytes::Bytes;
#[cfg(feature = "descriptors")]
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};

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
    pub(crate) fn compile(_: &[PathBuf], _: &[PathBuf]) -> (Self, Vec<String>) {
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

/// The files of the option `google.api.http`, for programs that do not have them.
#[cfg(feature = "descriptors")]
struct Annotations;

#[cfg(feature = "descriptors")]
impl FileResolver for Annotations {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let source = match name {
            "google/api/annotations.proto" => include_str!("google/annotations.proto"),
            "google/api/http.proto" => include_str!("google/http.proto"),
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
    resolver.add(Annotations);
    resolver
}

#[cfg(feature = "descriptors")]
impl Descriptors {
    /// Compiles each file by itself; imports are looked up in `paths` and beside it. Gives back why
    /// files do not compile: those are served, and only their names are known.
    pub(crate) fn compile(files: &[PathBuf], paths: &[PathBuf]) -> (Self, Vec<String>) {
        let mut pool = prost_reflect::DescriptorPool::new();
        let mut failed = Vec::new();
        for file in files {
            let beside = file.parent().map(std::path::Path::to_owned);
            let resolver = resolver(paths.iter().cloned().chain(beside));
            let mut compiler = protox::Compiler::with_file_resolver(resolver);
            compiler.include_imports(true).include_source_info(false);
            // Encoded: structures would lose options such as `google.api.http`.
            let compiled = compiler.open_file(file);
            let compiled = compiled.map(|compiler| compiler.encode_file_descriptor_set());
            let added = match compiled {
                Ok(set) => pool
                    .decode_file_descriptor_set(&set[..])
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = added {
                failed.push(format!("`{}`: {why}", file.display()));
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
        assert!(failed[0].contains("bad.proto"), "{failed:?}");
        for symbol in ["a.b.S", "a.b.S.Do", "a.b.M", "a.b.M.s"] {
            let files = descriptors.of_symbol(symbol).unwrap();
            assert_eq!(files.len(), 3, "{symbol}");
        }
        assert!(descriptors.of_symbol("T").is_none());
        assert_eq!(descriptors.file("common/c.proto").unwrap().len(), 1);
    }
}
