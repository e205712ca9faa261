//! The services that are served, and their methods.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::files::{FileError, Read, read_all};
use crate::proto::Method;

/// All services by their full names.
#[derive(Debug, Default)]
pub(crate) struct ServiceTable {
    services: BTreeMap<String, Served>,
    files: Vec<PathBuf>,
}

/// A service that is served.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) path: PathBuf,
    pub(crate) methods: Vec<Method>,
}

/// Names that this server answers itself.
pub(crate) const HEALTH: &str = "grpc.health.v1.Health";
pub(crate) const REFLECTION_V1: &str = "grpc.reflection.v1.ServerReflection";
pub(crate) const REFLECTION_V1ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";

impl ServiceTable {
    /// Reads the services of `.proto` files.
    pub(crate) fn load(named: &[String], directory: &Path) -> Result<Self, FileError> {
        let mut table = Self::default();
        for Read { path, file } in read_all(named, directory)? {
            table.files.push(path.clone());
            for service in &file.services {
                let name = file.full_name(&service.name);
                if let Some(other) = table.services.get(&name) {
                    return Err(FileError::Twice {
                        service: name,
                        first: other.path.clone(),
                        second: path,
                    });
                }
                let served = Served {
                    path: path.clone(),
                    methods: service.methods.clone(),
                };
                table.services.insert(name, served);
            }
        }
        Ok(table)
    }

    pub(crate) fn method(&self, service: &str, method: &str) -> Option<&Method> {
        let served = self.services.get(service)?;
        served.methods.iter().find(|it| it.name == method)
    }

    pub(crate) fn get(&self, service: &str) -> Option<&Served> {
        self.services.get(service)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Served)> {
        self.services.iter().map(|(name, served)| (&**name, served))
    }

    /// Tells methods that hide one another: PHP sees no difference between `Get` and `GET`.
    pub(crate) fn hidden(&self) -> Vec<String> {
        let mut hidden = Vec::new();
        for (service, served) in self.iter() {
            let mut firsts: BTreeMap<String, &String> = BTreeMap::new();
            for Method { name, .. } in &served.methods {
                match firsts.entry(name.to_ascii_lowercase()) {
                    Entry::Vacant(place) => _ = place.insert(name),
                    Entry::Occupied(first) if *first.get() == name => {
                        let what = format!("gives `{service}` the method `{name}` twice");
                        hidden.push(format!("{what}: the first one counts"));
                    }
                    Entry::Occupied(first) => hidden.push(format!(
                        "gives `{service}` the methods `{}` and `{name}`, which PHP does not tell \
                         apart: case does not count in names of methods",
                        first.get()
                    )),
                }
            }
        }
        hidden
    }

    /// For people and programs that look at the server.
    pub(crate) fn shown(&self) -> Value {
        let shown = self.iter().map(|(service, served)| {
            let methods = served.methods.iter().map(|method| {
                json!({
                    "name": method.name,
                    "client_streams": method.client_streams,
                    "server_streams": method.server_streams,
                })
            });
            let methods: Vec<_> = methods.collect();
            json!({ "service": service, "file": served.path, "methods": methods })
        });
        shown.collect()
    }

    /// All files that were read.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Methods of which a side streams.
    pub(crate) fn streams(&self) -> bool {
        let mut methods = self.services.values().flat_map(|served| &served.methods);
        methods.any(|method| method.client_streams || method.server_streams)
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn methods_that_differ_only_in_case_are_reported() {
        let directory = Directory::new();
        let text = "package a; service S { rpc Get(M) returns (M); rpc GET(M) returns (M); \
                    rpc Get(M) returns (M); rpc Put(M) returns (M); } \
                    service T { rpc get(M) returns (M); }";
        directory.write("a.proto", text);
        let table = ServiceTable::load(&["a.proto".to_owned()], directory.as_ref()).unwrap();
        let expected = [
            "gives `a.S` the methods `Get` and `GET`, which PHP does not tell apart: case does not \
             count in names of methods",
            "gives `a.S` the method `Get` twice: the first one counts",
        ];
        assert_eq!(table.hidden(), expected);
    }
}
