//! Classes of messages: properties, and methods that read and set them.

use std::collections::HashSet;
use std::fmt::Write;

use prost_reflect::prost_types::{FieldDescriptorProto, FieldOptions, MessageOptions};
use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use super::names::{camel, enum_class, message_class, metadata_class};
use super::text::{Comments, class_file, short};
use crate::generated::GeneratedFile;

/// The namespace of the runtime's parts.
const INTERNAL: &str = "\\Google\\Protobuf\\Internal";

/// The messages that wrap one value, and are read and set as that as well.
const WRAPPERS: &[&str] = &[
    "google.protobuf.BoolValue",
    "google.protobuf.BytesValue",
    "google.protobuf.DoubleValue",
    "google.protobuf.FloatValue",
    "google.protobuf.Int32Value",
    "google.protobuf.Int64Value",
    "google.protobuf.StringValue",
    "google.protobuf.UInt32Value",
    "google.protobuf.UInt64Value",
];

/// The class of a message, without those in it. The error says why it can't be one.
pub(super) fn message(
    of: &MessageDescriptor,
    comments: &Comments,
) -> Result<GeneratedFile, String> {
    let fields: Vec<_> = declared(of)
        .map(|field| Field::new(field, comments))
        .collect();
    check_names(of, &fields)?;
    let class = message_class(of);
    let own = format!("Generated from the message `{}`.", of.full_name());
    let mut text = comments.doc(of.path(), "", &deprecated(is_deprecated(of), vec![own]));
    _ = writeln!(
        text,
        "class {} extends {INTERNAL}\\Message\n{{",
        short(&class)
    );
    for field in &fields {
        field.property(&mut text);
    }
    let oneofs = oneofs(of);
    for name in &oneofs {
        _ = writeln!(text, "    protected ${name};");
    }
    let types = fields
        .iter()
        .map(|field| format!("    @type {} ${}", field.accepted(), field.name));
    let data = ["@param array $data {".to_owned()].into_iter();
    let data = data
        .chain(types)
        .chain(["}".to_owned()])
        .collect::<Vec<_>>();
    let metadata = metadata_class(&of.parent_file());
    _ = write!(
        text,
        "\n{}    public function __construct($data = null)\n    {{\n        \
         \\{metadata}::initOnce();\n        parent::__construct($data);\n    }}\n",
        comments.doc(&[], "    ", &data)
    );
    for field in &fields {
        field.methods(&mut text);
    }
    for name in &oneofs {
        let doc = comments.doc(&[], "    ", &["@return string".to_owned()]);
        let body = format!("return $this->whichOneof(\"{name}\");");
        method(&mut text, &doc, &format!("get{}()", camel(name)), &[body]);
    }
    text.push_str("}\n");
    Ok(class_file(&of.parent_file(), &class, &text))
}

/// The fields in the order of the file.
fn declared(of: &MessageDescriptor) -> impl Iterator<Item = FieldDescriptor> {
    let numbers = of
        .descriptor_proto()
        .field
        .iter()
        .map(FieldDescriptorProto::number);
    numbers.filter_map(|number| of.get_field(u32::try_from(number).ok()?))
}

/// The names of the oneofs that the file has.
fn oneofs(of: &MessageDescriptor) -> Vec<String> {
    let oneofs = of.oneofs().filter(|oneof| !oneof.is_synthetic());
    oneofs.map(|oneof| oneof.name().to_owned()).collect()
}

fn is_deprecated(of: &MessageDescriptor) -> bool {
    let options = of.descriptor_proto().options.as_ref();
    options.is_some_and(MessageOptions::deprecated)
}

pub(super) fn deprecated(is: bool, mut lines: Vec<String>) -> Vec<String> {
    if is {
        lines.push("@deprecated".to_owned());
    }
    lines
}

/// PHP takes no two methods whose names differ in case alone.
fn check_names(of: &MessageDescriptor, fields: &[Field<'_>]) -> Result<(), String> {
    let oneofs = oneofs(of);
    let wrapped = fields.iter().filter(|field| field.is_wrapper());
    let wrapped = wrapped.map(|field| format!("{}Unwrapped", field.camel));
    let names = fields.iter().map(|field| field.camel.clone());
    let mut seen = HashSet::new();
    for name in names
        .chain(oneofs.iter().map(|name| camel(name)))
        .chain(wrapped)
    {
        if !seen.insert(name.to_ascii_lowercase()) {
            return Err(format!(
                "the message `{}` would have two methods `get{name}()`",
                of.full_name()
            ));
        }
    }
    Ok(())
}

/// A field, with all that its methods name.
struct Field<'a> {
    of: FieldDescriptor,
    comments: &'a Comments,
    name: String,
    camel: String,
    /// As the file has it, without its options.
    declaration: String,
    is_deprecated: bool,
}

impl<'a> Field<'a> {
    fn new(of: FieldDescriptor, comments: &'a Comments) -> Self {
        let proto = of.field_descriptor_proto();
        let label = match of.cardinality() {
            _ if of.is_map() => "",
            Cardinality::Repeated => "repeated ",
            _ if proto.proto3_optional() => "optional ",
            Cardinality::Optional | Cardinality::Required => "",
        };
        let kind = match (of.is_map(), of.kind()) {
            (true, Kind::Message(entry)) => format!(
                "map<{}, {}>",
                word(&entry.map_entry_key_field().kind()),
                word(&entry.map_entry_value_field().kind())
            ),
            (_, kind) => word(&kind),
        };
        let options = proto.options.as_ref();
        Self {
            declaration: format!("{label}{kind} {} = {}", of.name(), of.number()),
            is_deprecated: options.is_some_and(FieldOptions::deprecated),
            name: of.name().to_owned(),
            camel: camel(of.name()),
            comments,
            of,
        }
    }

    fn is_many(&self) -> bool {
        self.of.is_list() || self.of.is_map()
    }

    fn is_in_oneof(&self) -> bool {
        let oneof = self.of.containing_oneof();
        oneof.is_some_and(|oneof| !oneof.is_synthetic())
    }

    fn is_wrapper(&self) -> bool {
        let kind = self.of.kind();
        let message = kind.as_message().filter(|_| !self.is_many());
        message.is_some_and(|message| WRAPPERS.contains(&message.full_name()))
    }

    fn doc(&self, lines: Vec<String>) -> String {
        let own = format!("Generated from the field `{}`.", self.declaration);
        let lines = [own].into_iter().chain(lines).collect();
        let lines = deprecated(self.is_deprecated, lines);
        self.comments.doc(self.of.path(), "    ", &lines)
    }

    fn property(&self, text: &mut String) {
        let name = &self.name;
        let declared = match self.zero() {
            _ if self.is_many() => format!("private ${name};"),
            _ if self.is_in_oneof() => return,
            _ if self.of.supports_presence() => format!("protected ${name} = null;"),
            zero => format!("protected ${name} = {zero};"),
        };
        _ = writeln!(text, "{}    {declared}", self.doc(Vec::new()));
    }

    fn methods(&self, text: &mut String) {
        let (name, camel, number) = (&self.name, &self.camel, self.of.number());
        let is_many = self.is_many();
        let is_message = !is_many && self.of.kind().as_message().is_some();
        let has_presence = self.of.supports_presence();
        let (is_set, read) = if self.is_in_oneof() {
            (
                format!("$this->hasOneof({number})"),
                format!("$this->readOneof({number})"),
            )
        } else if has_presence && !is_message {
            let read = format!("isset($this->{name}) ? $this->{name} : {}", self.zero());
            (format!("isset($this->{name})"), read)
        } else if has_presence {
            (format!("isset($this->{name})"), format!("$this->{name}"))
        } else if is_many {
            (
                format!("count($this->{name}) !== 0"),
                format!("$this->{name}"),
            )
        } else {
            (
                format!("$this->{name} !== {}", self.zero()),
                format!("$this->{name}"),
            )
        };
        let warning = format!("@trigger_error('{name} is deprecated.', E_USER_DEPRECATED);");
        // Serializing reads all fields: a field that nobody has set is not warned of.
        let warned = |body: String| {
            let warning = format!("if ({is_set}) {{\n            {warning}\n        }}");
            let warning = self.is_deprecated.then_some(warning);
            warning.into_iter().chain([body]).collect::<Vec<_>>()
        };
        let null = if is_message { "|null" } else { "" };
        let doc = self.doc(vec![format!("@return {}{null}", self.returned())]);
        method(
            text,
            &doc,
            &format!("get{camel}()"),
            &warned(format!("return {read};")),
        );
        if has_presence {
            let body = warned(format!("return {is_set};"));
            method(text, "", &format!("has{camel}()"), &body);
        }
        if has_presence && !self.is_in_oneof() {
            let mut body = Vec::new();
            body.extend(self.is_deprecated.then(|| warning.clone()));
            body.push(format!("unset($this->{name});"));
            method(text, "", &format!("clear{camel}()"), &body);
        }
        let unwrapped = self
            .of
            .kind()
            .as_message()
            .and_then(|it| it.get_field_by_name("value"));
        let unwrapped = unwrapped.filter(|_| self.is_wrapper());
        if let Some(value) = &unwrapped {
            let doc = self.doc(vec![format!("@return {}|null", doc_type(&value.kind()))]);
            let body = warned(format!("return $this->readWrapperValue(\"{name}\");"));
            method(text, &doc, &format!("get{camel}Unwrapped()"), &body);
        }
        let doc = self.doc(vec![
            format!("@param {} $var", self.accepted()),
            "@return $this".to_owned(),
        ]);
        let mut body = Vec::new();
        body.extend((self.is_deprecated && !is_many).then(|| warning.clone()));
        body.push(self.check());
        if is_many {
            let warning = format!("if (count($arr) !== 0) {{\n            {warning}\n        }}");
            body.extend(self.is_deprecated.then_some(warning));
        }
        body.push(match (self.is_in_oneof(), is_many) {
            (true, _) => format!("$this->writeOneof({number}, $var);"),
            (false, true) => format!("$this->{name} = $arr;"),
            (false, false) => format!("$this->{name} = $var;"),
        });
        body.push("\n        return $this;".to_owned());
        method(text, &doc, &format!("set{camel}($var)"), &body);
        if let Some(value) = &unwrapped {
            let doc = self.doc(vec![
                format!("@param {}|null $var", doc_type(&value.kind())),
                "@return $this".to_owned(),
            ]);
            let body = [
                format!("$this->writeWrapperValue(\"{name}\", $var);"),
                "\n        return $this;".to_owned(),
            ];
            method(text, &doc, &format!("set{camel}Unwrapped($var)"), &body);
        }
    }

    /// The statement that checks a value, or makes a list or a map of it.
    fn check(&self) -> String {
        let util = format!("{INTERNAL}\\GPBUtil");
        match self.of.kind() {
            Kind::Message(entry) if self.of.is_map() => {
                let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
                let (key, value) = (gpb_type(&key.kind()), gpb_type_and_class(&value.kind()));
                format!("$arr = {util}::checkMapField($var, {key}, {value});")
            }
            kind if self.of.is_list() => {
                let item = gpb_type_and_class(&kind);
                format!("$arr = {util}::checkRepeatedField($var, {item});")
            }
            kind => {
                let (name, argument) = match &kind {
                    Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => ("Int32", String::new()),
                    Kind::Uint32 | Kind::Fixed32 => ("Uint32", String::new()),
                    Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => ("Int64", String::new()),
                    Kind::Uint64 | Kind::Fixed64 => ("Uint64", String::new()),
                    Kind::Float => ("Float", String::new()),
                    Kind::Double => ("Double", String::new()),
                    Kind::Bool => ("Bool", String::new()),
                    Kind::String => ("String", ", true".to_owned()),
                    Kind::Bytes => ("String", ", false".to_owned()),
                    Kind::Enum(of) => ("Enum", format!(", \\{}::class", enum_class(of))),
                    Kind::Message(of) => ("Message", format!(", \\{}::class", message_class(of))),
                };
                format!("{util}::check{name}($var{argument});")
            }
        }
    }

    fn zero(&self) -> &'static str {
        match self.of.kind() {
            Kind::Double | Kind::Float => "0.0",
            Kind::Bool => "false",
            Kind::String | Kind::Bytes => "''",
            Kind::Message(_) => "null",
            _ => "0",
        }
    }

    /// The types of values that it can be set to.
    fn accepted(&self) -> String {
        if self.of.is_map() {
            return format!("array|{INTERNAL}\\MapField");
        }
        let kind = doc_type(&self.of.kind());
        if !self.of.is_list() {
            return kind;
        }
        let items = kind.split('|').map(|kind| format!("array<{kind}>|"));
        format!("{}{INTERNAL}\\RepeatedField", items.collect::<String>())
    }

    fn returned(&self) -> String {
        match (self.of.is_map(), self.of.is_list()) {
            (true, _) => format!("{INTERNAL}\\MapField"),
            (_, true) => format!("{INTERNAL}\\RepeatedField"),
            _ => doc_type(&self.of.kind()),
        }
    }
}

fn method(text: &mut String, doc: &str, signature: &str, body: &[String]) {
    _ = write!(
        text,
        "\n{doc}    public function {signature}\n    {{\n        {}\n    }}\n",
        body.join("\n        ").replace("\n        \n", "\n\n")
    );
}

fn gpb_type(kind: &Kind) -> String {
    let word = match kind {
        Kind::Message(_) => "MESSAGE".to_owned(),
        Kind::Enum(_) => "ENUM".to_owned(),
        plain => word(plain).to_ascii_uppercase(),
    };
    format!("{INTERNAL}\\GPBType::{word}")
}

/// The arguments that say what a list or a map has.
fn gpb_type_and_class(kind: &Kind) -> String {
    let of = gpb_type(kind);
    match kind {
        Kind::Message(message) => format!("{of}, \\{}::class", message_class(message)),
        Kind::Enum(of_enum) => format!("{of}, \\{}::class", enum_class(of_enum)),
        _ => of,
    }
}

/// A type as `.proto` files have it.
fn word(kind: &Kind) -> String {
    let word = match kind {
        Kind::Double => "double",
        Kind::Float => "float",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::Sint32 => "sint32",
        Kind::Sint64 => "sint64",
        Kind::Fixed32 => "fixed32",
        Kind::Fixed64 => "fixed64",
        Kind::Sfixed32 => "sfixed32",
        Kind::Sfixed64 => "sfixed64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Message(message) => message.full_name(),
        Kind::Enum(of) => of.full_name(),
    };
    word.to_owned()
}

/// A type as comments of PHP have it.
fn doc_type(kind: &Kind) -> String {
    let word = match kind {
        Kind::Double | Kind::Float => "float",
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => "int|string",
        Kind::Bool => "bool",
        Kind::String | Kind::Bytes => "string",
        Kind::Message(message) => return format!("\\{}", message_class(message)),
        _ => "int",
    };
    word.to_owned()
}
