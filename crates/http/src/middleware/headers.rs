//! `headers`: fields that the server sets in requests and responses, and what pages of other sites
//! may do.

use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request};
use pronghorn_wire::Fields;

use super::cors::{Asking, Cors};
use super::parts::Parts;
use crate::settings::FieldRules;

/// Names with their values; an empty one removes the field.
type Rules = Vec<(String, String)>;

/// Sets fields: a client can't bring another value for one of `request`, nor PHP for one of
/// `response`.
struct Headers {
    next: Arc<dyn Handler>,
    request: Rules,
    response: Rules,
    cors: Option<Cors>,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let Some(settings) = &parts.settings.headers else {
        return next;
    };
    let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
    Arc::new(Headers {
        next,
        // As all names of a request are.
        request: rules(&settings.request).into_iter().map(lower).collect(),
        response: rules(&settings.response),
        cors: settings.cors.clone().map(Cors),
    })
}

fn rules(rules: &FieldRules) -> Rules {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    rules.iter().map(owned).collect()
}

impl Handler for Headers {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let cors = self.cors.as_ref();
        let marked = match cors.map(|cors| (cors, cors.ask(&request.head))) {
            Some((_, Asking::First(mut answer))) => {
                apply(&self.response, &mut answer.fields);
                return Box::pin(std::future::ready(*answer));
            }
            Some((cors, Asking::Now(allowed))) => Some((cors, allowed)),
            None => None,
        };
        apply(&self.request, request.head.fields_mut());
        if self.response.is_empty() && marked.is_none() {
            return self.next.handle(request, exchange);
        }
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            apply(&self.response, &mut response.fields);
            if let Some((cors, allowed)) = marked {
                cors.mark(&mut response.fields, allowed.as_deref());
            }
            response
        })
    }
}

fn apply(rules: &[(String, String)], fields: &mut Fields) {
    for (name, value) in rules {
        fields.remove(name);
        if !value.is_empty() {
            fields.push(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_field_is_set_in_place_of_others_of_its_name() {
        let mut fields: Fields = [("x-a", "1"), ("b", "2"), ("X-A", "3")]
            .into_iter()
            .collect();
        apply(&[rule("X-A", "ours"), rule("New", "n")], &mut fields);
        let expected = [("b", "2"), ("X-A", "ours"), ("New", "n")];
        assert_eq!(fields, expected.into_iter().collect());
    }

    #[test]
    fn an_empty_text_removes_a_field() {
        let mut fields: Fields = [("x-a", "1"), ("b", "2")].into_iter().collect();
        apply(&[rule("X-A", "")], &mut fields);
        assert_eq!(fields, [("b", "2")].into_iter().collect());
    }
}
