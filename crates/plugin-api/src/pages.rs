//! Pages by which services show themselves: facts as JSON, which the admin listener serves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use pronghorn_base::{BoxFuture, lock};

use crate::rpc::{Caller, Encoding, Methods};

/// JSON, or why there is none.
pub type Shown = Result<String, NotShown>;

/// A page that is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotShown {
    /// Whoever asks wants something that is not there.
    Missing(String),
    /// It could not be read.
    Failed(String),
}

type Read = Arc<dyn Fn(Option<String>) -> BoxFuture<'static, Shown> + Send + Sync>;

#[derive(Clone)]
struct Page {
    schema: &'static str,
    read: Read,
    has_parts: bool,
}

/// Pages by their names below `/api/v1/`.
#[derive(Clone, Default)]
pub struct Pages(Arc<Mutex<BTreeMap<&'static str, Page>>>);

impl Pages {
    /// From now on `/api/v1/NAME` shows what `read` tells. It takes the place of a page with this
    /// name.
    ///
    /// `schema` is an object of JSON with the paths of the page, as OpenAPI has them. `read` runs
    /// where the admin listener does: it must not block.
    pub fn add<F>(
        &self,
        name: &'static str,
        schema: &'static str,
        read: impl Fn() -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Shown> + Send + 'static,
    {
        let page = Page {
            schema,
            read: Arc::new(move |_| Box::pin(read())),
            has_parts: false,
        };
        lock(&self.0).insert(name, page);
    }

    /// The same, for a page with others below it: `read` gets `PART` of `/api/v1/NAME/PART`.
    pub fn add_with_parts<F>(
        &self,
        name: &'static str,
        schema: &'static str,
        read: impl Fn(Option<String>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Shown> + Send + 'static,
    {
        let page = Page {
            schema,
            read: Arc::new(move |part| Box::pin(read(part))),
            has_parts: true,
        };
        lock(&self.0).insert(name, page);
    }

    /// The same, for what a method of RPC tells that needs no argument.
    pub fn add_method(
        &self,
        name: &'static str,
        schema: &'static str,
        methods: &Methods,
        method: &'static str,
    ) {
        // The methods of a service may have these pages.
        let methods = methods.downgrade();
        self.add(name, schema, move || {
            let found = methods.upgrade().map(|methods| methods.find(method));
            async move {
                let method = match found {
                    Some(Ok(method)) => method,
                    Some(Err(unknown)) => return Err(NotShown::Missing(unknown.to_string())),
                    None => return Err(NotShown::Missing("the server stops".to_owned())),
                };
                let told = method.call(&Caller::anyone(), Encoding::Json, "{}".into());
                match told.await {
                    Ok(told) => Ok(String::from_utf8_lossy(&told).into_owned()),
                    Err(failure) => Err(NotShown::Failed(failure.to_string())),
                }
            }
        });
    }

    /// The pages that there are, and the paths of each, in the order of the alphabet.
    pub fn schemas(&self) -> Vec<(&'static str, &'static str)> {
        let pages = lock(&self.0);
        pages
            .iter()
            .map(|(name, page)| (*name, page.schema))
            .collect()
    }

    /// Reads `NAME` or `NAME/PART`. None where there is no such page.
    pub fn read(&self, path: &str) -> Option<BoxFuture<'static, Shown>> {
        let (name, part) = match path.split_once('/') {
            Some((name, part)) => (name, Some(part.to_owned())),
            None => (path, None),
        };
        let page = lock(&self.0).get(name).cloned();
        let page = page.filter(|page| part.is_none() || page.has_parts);
        page.map(|page| (page.read)(part))
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(lock(&self.0).keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(pages: &Pages, path: &str) -> Option<Shown> {
        match pages.read(path) {
            Some(shown) => Some(shown.await),
            None => None,
        }
    }

    #[tokio::test]
    async fn a_page_is_read_by_its_name_and_perhaps_a_part_of_it() {
        let pages = Pages::default();
        pages.add("a", "{}", || async { Ok("1".to_owned()) });
        let part = |part| async move { Ok(format!("{part:?}")) };
        pages.add_with_parts("b", "{}", part);
        for (path, shown) in [
            ("a", Some("1")),
            ("a/x", None),
            ("b", Some("None")),
            ("b/x/y", Some("Some(\"x/y\")")),
            ("c", None),
            ("", None),
        ] {
            let shown = shown.map(|text| Ok(text.to_owned()));
            assert_eq!(read(&pages, path).await, shown, "{path}");
        }
        pages.add("a", "{\"x\":1}", || async {
            Err(NotShown::Failed("no".to_owned()))
        });
        assert_eq!(
            read(&pages, "a").await,
            Some(Err(NotShown::Failed("no".to_owned())))
        );
        assert_eq!(pages.schemas(), [("a", "{\"x\":1}"), ("b", "{}")]);
    }

    #[tokio::test]
    async fn a_method_of_rpc_is_a_page_until_it_is_gone() {
        let (pages, methods) = (Pages::default(), Methods::default());
        pages.add_method("a", "{}", &methods, "jobs.Overview");
        assert!(matches!(
            read(&pages, "a").await,
            Some(Err(NotShown::Missing(_)))
        ));
        methods
            .service("jobs", ())
            .add("Overview", async |(), it: bool| Ok(!it));
        let failed = read(&pages, "a").await;
        assert!(
            matches!(failed, Some(Err(NotShown::Failed(_)))),
            "an object is no bool: {failed:?}"
        );
        drop(methods);
        assert!(matches!(
            read(&pages, "a").await,
            Some(Err(NotShown::Missing(_)))
        ));
    }
}
