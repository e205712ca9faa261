//! The files that are served: pages of HTML that are alike in every run.

use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::site::Site;

/// By the sizes that pages, scripts and pictures have.
const FILES: [(&str, usize); 3] = [
    ("1k.html", 1 << 10),
    ("20k.html", 20 << 10),
    ("100k.html", 100 << 10),
];

/// Writes them into a folder `files` below this one.
pub(crate) fn write(folder: &Path) -> Result<PathBuf, BenchError> {
    let files = folder.join("files");
    std::fs::create_dir(&files).map_err(|source| BenchError::Write {
        file: files.clone(),
        source,
    })?;
    for (name, size) in FILES {
        Site::write(&files.join(name), page(size))?;
    }
    Ok(files)
}

/// HTML of so many bytes. gzip makes a quarter of it, as of pages that people write.
fn page(size: usize) -> Vec<u8> {
    const WORDS: [&str; 32] = [
        "antelope", "grass", "herd", "plain", "river", "the", "of", "and", "in", "to", "runs",
        "sees", "early", "summer", "winter", "north", "fence", "snow", "doe", "fawn", "horn",
        "speed", "range", "valley", "sage", "wolf", "eagle", "dawn", "track", "wind", "stone",
        "ridge",
    ];
    let mut page =
        String::from("<!DOCTYPE html>\n<html><head><title>Pronghorn</title></head><body>\n");
    let mut random: u32 = 1;
    while page.len() < size {
        // Numerical Recipes' generator: its upper bits are random enough.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = WORDS[random as usize >> 27];
        match random >> 13 & 31 {
            0 => page.push_str("</p>\n<p class=\"text\">"),
            1 => page.extend([
                "<a href=\"/",
                word,
                "/",
                &random.to_string(),
                "\">",
                word,
                "</a> ",
            ]),
            _ => page.extend([word, " "]),
        }
    }
    page.truncate(size);
    page.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::scenario::{folder, select};

    #[test]
    fn files_are_what_the_scenarios_expect() {
        for (name, size) in FILES {
            let name = format!("file-{}", name.trim_end_matches(".html"));
            let scenario = select(&folder(), &[name]).unwrap().remove(0);
            assert_eq!(scenario.expected.check(200, false, &page(size)), Ok(()));
        }
    }

    #[test]
    fn a_page_compresses_as_pages_do() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(5));
        encoder.write_all(&page(20 << 10)).unwrap();
        let length = encoder.finish().unwrap().len();
        assert!((3 << 10..8 << 10).contains(&length), "{length}");
    }
}
