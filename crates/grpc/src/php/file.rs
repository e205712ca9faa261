//! Enums, and what the runtime is told of a file.

use std::fmt::Write;

use prost::Message as _;
use prost_reflect::prost_types::{
    DescriptorProto, EnumOptions, EnumValueOptions, FileDescriptorProto,
};
use prost_reflect::{EnumDescriptor, FileDescriptor};

use super::message::deprecated;
use super::names::{constant, enum_class, metadata_class};
use super::text::{Comments, class_file, quoted, short};
use crate::generated::GeneratedFile;

/// The class of an enum.
pub(super) fn enumeration(of: &EnumDescriptor, comments: &Comments) -> GeneratedFile {
    let class = enum_class(of);
    let options = of.enum_descriptor_proto().options.as_ref();
    let is_deprecated = options.is_some_and(EnumOptions::deprecated);
    let own = vec![format!("Generated from the enum `{}`.", of.full_name())];
    let mut text = comments.doc(of.path(), "", &deprecated(is_deprecated, own));
    _ = writeln!(text, "class {}\n{{", short(&class));
    let (mut names, mut has_prefix) = (String::new(), false);
    for (at, value) in of.enum_descriptor_proto().value.iter().enumerate() {
        let (name, number) = (value.name(), value.number());
        let constant = constant(name);
        has_prefix |= constant != name;
        _ = writeln!(names, "        self::{constant} => '{name}',");
        let place = [of.path(), &[2, i32::try_from(at).unwrap_or(i32::MAX)]].concat();
        let is_deprecated = value
            .options
            .as_ref()
            .is_some_and(EnumValueOptions::deprecated);
        let own = vec![format!("Generated from the value `{name} = {number}`.")];
        text.push_str(&comments.doc(&place, "    ", &deprecated(is_deprecated, own)));
        _ = writeln!(text, "    const {constant} = {number};");
    }
    let other = if has_prefix {
        "        if (!defined($const)) {\n            \
         $const = __CLASS__ . '::PB' . strtoupper($name);\n        }\n"
    } else {
        ""
    };
    _ = write!(
        text,
        r"
    private static $valueToName = [
{names}    ];

    public static function name($value)
    {{
        if (!isset(self::$valueToName[$value])) {{
            throw new \UnexpectedValueException(sprintf(
                'Enum %s has no name defined for value %s', __CLASS__, $value));
        }}

        return self::$valueToName[$value];
    }}

    public static function value($name)
    {{
        $const = __CLASS__ . '::' . strtoupper($name);
{other}        if (!defined($const)) {{
            throw new \UnexpectedValueException(sprintf(
                'Enum %s has no value defined for name %s', __CLASS__, $name));
        }}

        return constant($const);
    }}
}}
"
    );
    class_file(&of.parent_file(), &class, &text)
}

/// The class that adds a file's types to the runtime, after those of `needed`.
pub(super) fn metadata(of: &FileDescriptor, needed: &[FileDescriptor]) -> GeneratedFile {
    let class = metadata_class(of);
    let mut before = String::new();
    for file in needed {
        _ = writeln!(before, "        \\{}::initOnce();", metadata_class(file));
    }
    // A set with one file.
    let bytes = described(of, needed).encode_to_vec();
    let mut set = vec![0x0a];
    _ = prost::encode_length_delimiter(bytes.len(), &mut set); // a Vec grows
    set.extend(bytes);
    let body = format!(
        r"class {}
{{
    public static $is_initialized = false;

    public static function initOnce()
    {{
        if (static::$is_initialized) {{
            return;
        }}
{before}        \Google\Protobuf\Internal\DescriptorPool::getGeneratedPool()->internalAddGeneratedFile(
            {},
            true
        );
        static::$is_initialized = true;
    }}
}}
",
        short(&class),
        quoted(&set)
    );
    class_file(of, &class, &body)
}

/// A file as the runtime takes it: it knows neither extensions nor options of others, and has no
/// use for comments.
fn described(of: &FileDescriptor, needed: &[FileDescriptor]) -> FileDescriptorProto {
    let mut proto = of.file_descriptor_proto().clone();
    proto.source_code_info = None;
    proto.extension.clear();
    proto.dependency = needed.iter().map(|file| file.name().to_owned()).collect();
    // Their numbers were those of the whole list; files are added by `initOnce()`.
    proto.public_dependency.clear();
    proto.weak_dependency.clear();
    proto.message_type.iter_mut().for_each(plain);
    proto
}

fn plain(message: &mut DescriptorProto) {
    message.extension.clear();
    for field in &mut message.field {
        if field.json_name() == json_name(field.name()) {
            field.json_name = None;
        }
    }
    message.nested_type.iter_mut().for_each(plain);
}

/// The name in JSON that a field has without a word about it.
fn json_name(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, part| name + &super::names::capital(part))
}
