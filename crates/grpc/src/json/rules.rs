//! The rules of `google.api.http`, which methods have as an option.

use prost_reflect::{DynamicMessage, FieldDescriptor, MessageDescriptor, MethodDescriptor, Value};

use super::fields::field_path;
use super::memory;
use super::template::Template;

/// The option by its full name.
const OPTION: &str = "google.api.http";
/// Bindings of one method beside its first.
const MOST_BINDINGS: usize = 100;

/// One way to call a method.
#[derive(Debug)]
pub(super) struct Route {
    /// The method of HTTP; `*` for any.
    pub(super) verb: String,
    /// The path, as the rule has it.
    pub(super) path: String,
    pub(super) template: Template,
    pub(super) method: MethodDescriptor,
    /// A value of its JSON may be a message.
    pub(super) is_dear: bool,
    pub(super) body: BodyRule,
    pub(super) output: Output,
}

/// The message of a reply, and the part of it that is sent.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) message: MessageDescriptor,
    /// None: all of it.
    pub(super) part: Option<FieldDescriptor>,
}

/// The use that the body has.
#[derive(Debug)]
pub(super) enum BodyRule {
    None,
    Whole,
    Field(FieldDescriptor),
}

/// All routes of a method.
pub(super) fn routes(method: &MethodDescriptor) -> Result<Vec<Route>, String> {
    let Some(option) = method.parent_pool().get_extension_by_name(OPTION) else {
        return Ok(Vec::new());
    };
    let options = method.options();
    if !options.has_extension(&option) {
        return Ok(Vec::new());
    }
    let value = options.get_extension(&option);
    let Some(rule) = value.as_message() else {
        return Err("`google.api.http` is no `HttpRule`".to_owned());
    };
    let mut routes = vec![route(method, rule)?];
    if let Some(more) = rule.get_field_by_name("additional_bindings")
        && let Some(more) = more.as_list()
    {
        if more.len() > MOST_BINDINGS {
            return Err(format!("it has more than {MOST_BINDINGS} bindings"));
        }
        for rule in more.iter().filter_map(Value::as_message) {
            routes.push(route(method, rule)?);
        }
    }
    Ok(routes)
}

fn text(rule: &DynamicMessage, name: &str) -> Option<String> {
    let value = rule.get_field_by_name(name)?;
    let text = value.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn route(method: &MethodDescriptor, rule: &DynamicMessage) -> Result<Route, String> {
    let verbs = ["get", "put", "post", "delete", "patch"];
    let mut verbs = verbs.iter().filter_map(|name| {
        let path = text(rule, name)?;
        Some((name.to_ascii_uppercase(), path))
    });
    let custom = || {
        let custom = rule.get_field_by_name("custom")?;
        let custom = custom.as_message()?;
        Some((text(custom, "kind")?, text(custom, "path")?))
    };
    let (verb, path) = verbs.next().or_else(custom).ok_or("a rule has no path")?;
    let template = Template::parse(&path).map_err(|why| format!("the path `{path}` {why}"))?;
    let (input, output) = (method.input(), method.output());
    for field in template.fields() {
        field_path(&input, field)?;
    }
    let body = match text(rule, "body") {
        None => BodyRule::None,
        Some(all) if all == "*" => BodyRule::Whole,
        Some(name) => {
            let field = input.get_field_by_name(&name);
            let why = || format!("`body` names `{name}`, which `{}` lacks", input.full_name());
            BodyRule::Field(field.ok_or_else(why)?)
        }
    };
    let response = text(rule, "response_body").map(|name| {
        let why = || {
            let message = output.full_name();
            format!("`response_body` names `{name}`, which `{message}` lacks")
        };
        output.get_field_by_name(&name).ok_or_else(why)
    });
    Ok(Route {
        verb,
        path,
        template,
        method: method.clone(),
        is_dear: memory::is_dear(&input),
        body,
        output: Output {
            part: response.transpose()?,
            message: output,
        },
    })
}
