//! Fields of messages by their paths.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// Names in the path of a field.
const DEEPEST: usize = 16;

/// The fields that a path such as `order.id` goes through.
pub(super) fn field_path(
    message: &MessageDescriptor,
    path: &str,
) -> Result<Vec<FieldDescriptor>, String> {
    let mut fields: Vec<FieldDescriptor> = Vec::new();
    for name in path.split('.') {
        let within = match fields.last() {
            None => message.clone(),
            Some(field) if field.is_list() || field.is_map() => {
                return Err(format!("`{path}` goes through a list or a map"));
            }
            Some(field) => match field.kind() {
                Kind::Message(message) => message,
                _ => return Err(format!("`{path}` goes through a field that is no message")),
            },
        };
        let field = within.get_field_by_name(name);
        let field = field.or_else(|| within.get_field_by_json_name(name));
        let unknown = || format!("`{}` has no field `{name}`", within.full_name());
        fields.push(field.ok_or_else(unknown)?);
        if fields.len() > DEEPEST {
            return Err(format!("`{path}` has more than {DEEPEST} names"));
        }
    }
    Ok(fields)
}
