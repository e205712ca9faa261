//! AWS's signature of a request, version 4, for a POST to the root of a host.

use std::fmt::Write;

use aws_lc_rs::{digest, hmac};
use chrono::{DateTime, Utc};

use super::credentials::Credentials;

const SERVICE: &str = "sqs";

/// A request that is signed. Names of fields are in lower case, and in their order.
pub(super) struct Request<'a> {
    pub(super) region: &'a str,
    pub(super) fields: &'a [(&'static str, String)],
    pub(super) body: &'a [u8],
    pub(super) now: DateTime<Utc>,
}

/// The time, as the field `x-amz-date` has it.
pub(super) fn moment(now: DateTime<Utc>) -> String {
    now.format("%Y%m%dT%H%M%SZ").to_string()
}

/// The value of the field `authorization`.
pub(super) fn authorization(request: &Request<'_>, credentials: &Credentials) -> String {
    let names: Vec<_> = request.fields.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut fields = String::new();
    for (name, value) in request.fields {
        fields.extend([*name, ":", value.trim(), "\n"]);
    }
    let canonical = format!("POST\n/\n\n{fields}\n{names}\n{}", hash(request.body));
    let date = request.now.format("%Y%m%d").to_string();
    let scope = format!("{date}/{}/{SERVICE}/aws4_request", request.region);
    let (moment, canonical) = (moment(request.now), hash(canonical.as_bytes()));
    let signed = format!("AWS4-HMAC-SHA256\n{moment}\n{scope}\n{canonical}");
    let secret = format!("AWS4{}", credentials.secret);
    let parts = [&date, request.region, SERVICE, "aws4_request", &signed];
    let signature = parts.iter().fold(secret.into_bytes(), |key, part| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        hmac::sign(&key, part.as_bytes()).as_ref().to_vec()
    });
    let (key, signature) = (&credentials.key, hex(&signature));
    format!(
        "AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        _ = write!(text, "{byte:02x}"); // a String takes it
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures are of another implementation (botocore), for the same request.
    #[test]
    fn a_request_is_signed_as_aws_does() {
        let fields = [
            ("content-type", "application/x-amz-json-1.0".to_owned()),
            ("host", "sqs.us-east-1.amazonaws.com".to_owned()),
            ("x-amz-date", "20150830T123600Z".to_owned()),
            ("x-amz-target", "AmazonSQS.ListQueues".to_owned()),
        ];
        let now = DateTime::from_timestamp(1_440_938_160, 0).expect("a date");
        let request = Request {
            region: "us-east-1",
            fields: &fields,
            body: b"{}",
            now,
        };
        assert_eq!(moment(now), "20150830T123600Z");
        let credentials =
            Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let signed = authorization(&request, &credentials);
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/sqs/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=f1c40a1a374ceab7f866d227903e333798aceb28b452721295229d75ddf72b72";
        assert_eq!(signed, expected);
    }
}
