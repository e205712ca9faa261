//! When an authority wants a certificate to be renewed (RFC 9773).

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;

use crate::api::{Api, retry_after, strange};
use crate::der::{Facts, rfc_3339};
use crate::error::AcmeError;
use crate::plan::Window;

/// Where the authority does not say when it wants to be asked again.
pub(crate) const ASKED_AFTER: Duration = Duration::from_hours(6);
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_hours(24);

/// How an authority names a certificate; None where it does not say whose key has signed it.
pub(crate) fn identifier(facts: &Facts) -> Option<String> {
    let key = BASE64.encode(facts.authority_key.as_ref()?);
    Some(format!("{key}.{}", BASE64.encode(&facts.serial)))
}

/// The time in which a certificate should be renewed, and when to ask again. None where the
/// authority does not say.
pub(crate) async fn suggested(
    api: &Api,
    facts: &Facts,
) -> Result<(Option<Window>, Duration), AcmeError> {
    let Some((base, identifier)) = api.url("renewalInfo").zip(identifier(facts)) else {
        return Ok((None, LONGEST));
    };
    let url = format!("{}/{identifier}", base.trim_end_matches('/'));
    let answer = api.get(&url).await?;
    let suggested = &answer.value["suggestedWindow"];
    let moment = |name: &str| suggested[name].as_str().and_then(rfc_3339);
    let window = moment("start").zip(moment("end"));
    let (start, end) = window.ok_or_else(|| strange(&url, "it suggests no window"))?;
    let again = retry_after(&answer.headers).unwrap_or(ASKED_AFTER);
    let again = again.clamp(SHORTEST, LONGEST);
    Ok((Some(Window { start, end }), again))
}
