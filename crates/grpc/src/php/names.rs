//! Names of classes, as `protoc --php_out` gives them. The runtime of PHP finds classes by the same
//! rules.

use prost_reflect::{EnumDescriptor, FileDescriptor, MessageDescriptor};

/// Words that are no class in PHP.
const RESERVED: &[&str] = &[
    "abstract",
    "and",
    "array",
    "as",
    "bool",
    "break",
    "callable",
    "case",
    "catch",
    "class",
    "clone",
    "const",
    "continue",
    "declare",
    "default",
    "die",
    "do",
    "echo",
    "else",
    "elseif",
    "empty",
    "enddeclare",
    "endfor",
    "endforeach",
    "endif",
    "endswitch",
    "endwhile",
    "eval",
    "exit",
    "extends",
    "false",
    "final",
    "finally",
    "float",
    "fn",
    "for",
    "foreach",
    "function",
    "global",
    "goto",
    "if",
    "implements",
    "include",
    "include_once",
    "instanceof",
    "insteadof",
    "int",
    "interface",
    "isset",
    "iterable",
    "list",
    "match",
    "mixed",
    "namespace",
    "never",
    "new",
    "null",
    "object",
    "or",
    "parent",
    "print",
    "private",
    "protected",
    "public",
    "readonly",
    "require",
    "require_once",
    "return",
    "self",
    "static",
    "string",
    "switch",
    "throw",
    "trait",
    "true",
    "try",
    "unset",
    "use",
    "var",
    "void",
    "while",
    "xor",
    "yield",
];

/// Some of them that `protoc` leaves as they are in names of constants.
const CONSTANTS: &[&str] = &[
    "bool", "false", "float", "int", "iterable", "mixed", "never", "null", "object", "parent",
    "readonly", "self", "string", "true", "void",
];

fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&&*word.to_ascii_lowercase())
}

/// Before a name of a file that is no class as it is.
fn prefix(name: &str, file: &FileDescriptor) -> &'static str {
    match (is_reserved(name), file.package_name()) {
        (false, _) => "",
        (true, "google.protobuf") => "GPB",
        (true, _) => "PB",
    }
}

/// The constant of an enum's value.
pub(super) fn constant(name: &str) -> String {
    let stays = CONSTANTS.contains(&&*name.to_ascii_lowercase());
    let prefix = if is_reserved(name) && !stays {
        "PB"
    } else {
        ""
    };
    format!("{prefix}{name}")
}

/// The namespace of a file's classes; empty for the global one.
pub(super) fn namespace(file: &FileDescriptor) -> String {
    let options = file.file_descriptor_proto().options.as_ref();
    if let Some(namespace) = options.and_then(|it| it.php_namespace.as_ref()) {
        return namespace.clone();
    }
    let parts = file.package_name().split('.').map(|part| {
        let part = capital(part);
        let prefix = if is_reserved(&part) { "PB" } else { "" };
        format!("{prefix}{part}")
    });
    parts.collect::<Vec<_>>().join("\\")
}

pub(super) fn message_class(message: &MessageDescriptor) -> String {
    let file = message.parent_file();
    class(&file, message.parent_message(), message.name())
}

pub(super) fn enum_class(of: &EnumDescriptor) -> String {
    class(&of.parent_file(), of.parent_message(), of.name())
}

/// The class of a type, with its namespace and without a backslash before that.
fn class(file: &FileDescriptor, mut outer: Option<MessageDescriptor>, name: &str) -> String {
    let options = file.file_descriptor_proto().options.as_ref();
    let own = options.map_or("", |it| it.php_class_prefix());
    let prefixed = |name: &str| match own {
        "" => format!("{}{name}", prefix(name, file)),
        own => format!("{own}{name}"),
    };
    let mut class = prefixed(name);
    while let Some(message) = outer {
        class = format!("{}\\{class}", prefixed(message.name()));
        outer = message.parent_message();
    }
    within(&namespace(file), &class)
}

/// A name in a namespace.
pub(super) fn within(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}\\{name}"),
    }
}

/// The class that tells the runtime what a file has.
pub(super) fn metadata_class(file: &FileDescriptor) -> String {
    let path = file.name();
    let path = path.rsplit_once('.').map_or(path, |(path, _)| path);
    let mut parts = path.split('/').map(|part| {
        let part = camel(part);
        format!("{}{part}", prefix(&part, file))
    });
    let name = parts.next_back().unwrap_or_default();
    let options = file.file_descriptor_proto().options.as_ref();
    let namespace = match options.and_then(|it| it.php_metadata_namespace.as_deref()) {
        Some(own) => own.trim_end_matches('\\').to_owned(),
        None => std::iter::once("GPBMetadata".to_owned())
            .chain(parts)
            .collect::<Vec<_>>()
            .join("\\"),
    };
    within(&namespace, &name)
}

/// `some_name2x` as `SomeName2X`.
pub(super) fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut begins = true;
    for character in name.chars() {
        if character.is_ascii_alphabetic() {
            camel.push(if begins {
                character.to_ascii_uppercase()
            } else {
                character
            });
        } else if character.is_ascii_digit() {
            camel.push(character);
        }
        begins = !character.is_ascii_alphabetic();
    }
    camel
}

/// The first letter as a capital one.
pub(super) fn capital(name: &str) -> String {
    let mut characters = name.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

/// Whether PHP takes a class by this name, each part of it being an identifier.
pub(super) fn is_class(class: &str) -> bool {
    class.split('\\').all(|part| {
        let mut bytes = part.bytes();
        let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80;
        bytes.next().is_some_and(begins) && bytes.all(|byte| begins(byte) || byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_those_of_protoc() {
        let pairs = [
            ("x_y_z", "XYZ"),
            ("a1b", "A1B"),
            ("someName", "SomeName"),
            ("_x", "X"),
            ("x__y", "XY"),
        ];
        for (name, wanted) in pairs {
            assert_eq!(camel(name), wanted);
        }
        assert_eq!(constant("CLASS"), "PBCLASS");
        assert_eq!(constant("NULL"), "NULL");
        for (class, fits) in [
            ("A\\B_1", true),
            ("1A", false),
            ("A\\", false),
            ("A;B", false),
            ("", false),
        ] {
            assert_eq!(is_class(class), fits, "{class}");
        }
    }
}
