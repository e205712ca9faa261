//! Records that come back from their JSON: a command shows them as a terminal would have them.

use std::fmt;
use std::time::{Duration, SystemTime};

use pronghorn_config::Choice;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{Content, Format, Layout, Paint, Record};
use crate::settings::Level;

/// A record's JSON, as a line for people, its end included. `None` for what is no record.
pub fn readable(json: &str, colours: bool) -> Option<String> {
    let Members(mut members) = serde_json::from_str(json).ok()?;
    let mut take = |wanted: &str| {
        let at = members.iter().position(|(name, _)| name == wanted)?;
        Some(members.remove(at).1)
    };
    let (level, since) = (take("level")?, take("ts")?.as_u64()?);
    let (logger, message) = (take("logger")?, take("msg")?);
    let record = Record {
        time: SystemTime::UNIX_EPOCH + Duration::from_nanos(since),
        level: Level::spelled(level.as_str()?)?,
        logger: logger.as_str()?,
        content: Content::Kept {
            message: message.as_str()?,
            fields: &members,
        },
    };
    let format = Format {
        layout: Layout::Screen(Paint(colours)),
        has_priority: false,
        line_ending: "\n".to_owned(),
    };
    let mut line = String::new();
    format.write(&mut line, &record);
    Some(line)
}

/// Of an object, in their order.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
