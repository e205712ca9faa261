//! Traces as JSON, in the encoding that OTLP has for it: a line for each batch, as the collector's
//! file exporter writes them and its receiver reads them.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::messages::{KeyValue, OneValue, Span, TracesRequest};

pub(crate) fn traces(request: &TracesRequest) -> String {
    let resources = request.resource_spans.iter().map(|each| {
        let resource = each
            .resource
            .as_ref()
            .map(|resource| &resource.attributes[..]);
        let scopes = each.scope_spans.iter().map(|each| {
            let scope = each.scope.clone().unwrap_or_default();
            json!({
                "scope": {"name": scope.name, "version": scope.version},
                "spans": each.spans.iter().map(span).collect::<Vec<_>>(),
            })
        });
        json!({
            "resource": {"attributes": attributes(resource.unwrap_or_default())},
            "scopeSpans": scopes.collect::<Vec<_>>(),
        })
    });
    json!({"resourceSpans": resources.collect::<Vec<_>>()}).to_string()
}

fn span(span: &Span) -> Value {
    // Numbers of 64 bits are texts, and identifiers are hexadecimal: so the protocol has it.
    let mut value = json!({
        "traceId": hex(&span.trace_id),
        "spanId": hex(&span.span_id),
        "parentSpanId": hex(&span.parent_span_id),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": attributes(&span.attributes),
    });
    if let Some(status) = &span.status {
        value["status"] = json!({"code": status.code, "message": status.message});
    }
    if !span.trace_state.is_empty() {
        value["traceState"] = json!(span.trace_state);
    }
    value
}

fn attributes(attributes: &[KeyValue]) -> Vec<Value> {
    let value = |each: &KeyValue| match each.value.as_ref()?.value.as_ref()? {
        OneValue::Text(text) => Some(json!({"stringValue": text})),
        OneValue::Bool(truth) => Some(json!({"boolValue": truth})),
        OneValue::Int(number) => Some(json!({"intValue": number.to_string()})),
    };
    let attributes = attributes.iter();
    attributes
        .map(|each| json!({"key": each.key, "value": value(each)}))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}"); // a string takes everything
        text
    })
}
