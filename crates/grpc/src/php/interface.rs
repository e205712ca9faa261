//! Interfaces of services, for our package or for RoadRunner's.

use std::fmt::Write;

use prost_reflect::{MethodDescriptor, ServiceDescriptor};

use super::names::{capital, message_class, namespace, within};
use super::text::{Comments, class_file, short};
use crate::generated::{GeneratedFile, Shape};

/// The interface of a service.
pub(super) fn interface(
    of: &ServiceDescriptor,
    comments: &Comments,
    shape: Shape,
) -> GeneratedFile {
    let class = interface_class(of);
    let own = format!("Generated from the service `{}`.", of.full_name());
    let mut text = comments.doc(of.path(), "", &[own]);
    let extends = match shape {
        Shape::Pronghorn => "",
        Shape::RoadRunner => " extends \\Spiral\\RoadRunner\\GRPC\\ServiceInterface",
    };
    _ = writeln!(text, "interface {}{extends}\n{{", short(&class));
    _ = writeln!(text, "    public const NAME = '{}';", of.full_name());
    for method in of.methods() {
        let (doc, signature) = match shape {
            Shape::Pronghorn => ours(&method),
            Shape::RoadRunner => roadrunners(&method),
        };
        let doc = comments.doc(method.path(), "    ", &doc);
        _ = write!(text, "\n{doc}    public function {signature};\n");
    }
    text.push_str("}\n");
    class_file(&of.parent_file(), &class, &text)
}

pub(super) fn interface_class(of: &ServiceDescriptor) -> String {
    let words = of.name().split('_').map(capital);
    let name = format!("{}Interface", words.collect::<String>());
    within(&namespace(&of.parent_file()), &name)
}

/// As `Pronghorn\Grpc\Server` calls methods: streams are iterated over.
fn ours(method: &MethodDescriptor) -> (Vec<String>, String) {
    let input = format!("\\{}", message_class(&method.input()));
    let output = format!("\\{}", message_class(&method.output()));
    let mut doc = Vec::new();
    let parameter = if method.is_client_streaming() {
        doc.push(format!("@param iterable<{input}> $in"));
        format!("#[\\Pronghorn\\Grpc\\Receives({input}::class)] iterable $in")
    } else {
        format!("{input} $in")
    };
    let result = if method.is_server_streaming() {
        doc.push(format!("@return \\Traversable<{output}>"));
        "\\Traversable"
    } else {
        &output
    };
    doc.push("@throws \\Pronghorn\\Grpc\\Failure".to_owned());
    let mut name = method.name().to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let context = "\\Pronghorn\\Grpc\\Context $context";
    let signature = format!("{name}({parameter}, {context}): {result}");
    (doc, signature)
}

/// As `protoc-gen-php-grpc` writes them: it knows no streams.
fn roadrunners(method: &MethodDescriptor) -> (Vec<String>, String) {
    let name = method.name();
    let input = message_class(&method.input());
    let output = message_class(&method.output());
    let package = "\\Spiral\\RoadRunner\\GRPC";
    let doc = vec![format!("@throws {package}\\Exception\\InvokeException")];
    let signature = format!("{name}({package}\\ContextInterface $ctx, \\{input} $in): \\{output}");
    (doc, signature)
}
