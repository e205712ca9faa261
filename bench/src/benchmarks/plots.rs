//! Plots as SVG without colours of its own: the page that holds them has a light theme and a dark
//! one.

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) shape: Shape,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub(crate) name: &'static str,
    pub(crate) is_logarithmic: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Lines(Vec<Line>),
    /// Bars from left to right, each with parts behind each other.
    Bars {
        parts: Vec<&'static str>,
        bars: Vec<(String, Vec<f64>)>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Plot {
    pub(crate) fn is_empty(&self) -> bool {
        match &self.shape {
            Shape::Lines(lines) => lines.iter().all(|line| line.points.is_empty()),
            Shape::Bars { bars, .. } => bars.is_empty(),
        }
    }

    /// What the colours mean, in their order.
    pub(crate) fn legend(&self) -> Vec<&str> {
        match &self.shape {
            Shape::Lines(lines) => lines.iter().map(|line| &*line.name).collect(),
            Shape::Bars { parts, .. } => parts.clone(),
        }
    }
}

/// What a plot is drawn with takes half a minute to compile.
#[cfg(not(feature = "plots"))]
pub(crate) fn svg(_plot: &Plot) -> Option<String> {
    None
}

#[cfg(feature = "plots")]
pub(crate) use drawn::svg;

#[cfg(feature = "plots")]
mod drawn {
    use plotters::coord::Shift;
    use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
    use plotters::prelude::*;
    use plotters::style::text_anchor::{HPos, Pos, VPos};

    use super::{Axis, Line, Plot, Shape};

    /// In the file's own units; the page scales it.
    const SIZE: (u32, u32) = (600, 380);
    const BAR: u32 = 34;
    const TEXT_SIZE: u32 = 17;
    /// Colours that stand for the page's: black is text, the others have no green and a number.
    const TEXT: RGBColor = RGBColor(0, 0, 0);
    const GRID: RGBColor = RGBColor(0xfe, 0, 0);

    const fn series(index: u8) -> RGBColor {
        RGBColor(0xfd, 0, index)
    }

    type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

    /// `None` if it can't be drawn: without points, or with values that are none.
    pub(crate) fn svg(plot: &Plot) -> Option<String> {
        let mut text = String::new();
        let height = match &plot.shape {
            Shape::Lines(_) => SIZE.1,
            Shape::Bars { bars, .. } => 70 + BAR * u32::try_from(bars.len()).ok()?,
        };
        {
            let area = SVGBackend::with_string(&mut text, (SIZE.0, height)).into_drawing_area();
            match &plot.shape {
                Shape::Lines(lines) => draw_lines(&area, plot, lines)?,
                Shape::Bars { bars, .. } => draw_bars(&area, plot, bars)?,
            }
            area.present().ok()?;
        }
        Some(themed(&text, &plot.title, height))
    }

    fn draw_lines(area: &Area<'_>, plot: &Plot, lines: &[Line]) -> Option<()> {
        let (x, y) = (
            range(lines, |point| point.0, &plot.x)?,
            range(lines, |point| point.1, &plot.y)?,
        );
        // Only powers of ten have a label: an axis without two of them would have none.
        let y_is_logarithmic = plot.y.is_logarithmic && y.end > y.start * 50.0;
        let y = if y_is_logarithmic { y } else { 0.0..y.end };
        match (plot.x.is_logarithmic, y_is_logarithmic) {
            (true, true) => draw_in(area, plot, lines, x.log_scale(), y.log_scale()),
            (true, false) => draw_in(area, plot, lines, x.log_scale(), y),
            (false, true) => draw_in(area, plot, lines, x, y.log_scale()),
            (false, false) => draw_in(area, plot, lines, x, y),
        }
    }

    /// A linear axis begins at zero.
    fn range(
        lines: &[Line],
        value: fn(&(f64, f64)) -> f64,
        axis: &Axis,
    ) -> Option<std::ops::Range<f64>> {
        let values = || lines.iter().flat_map(|line| &line.points).map(value);
        let least = values().fold(f64::INFINITY, f64::min);
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        let is_good = least.is_finite() && most.is_finite() && most > 0.0;
        if !is_good || (axis.is_logarithmic && least <= 0.0) {
            return None;
        }
        Some(if axis.is_logarithmic {
            least * 0.9..(most * 1.15).max(least * 1.5)
        } else {
            0.0..most * 1.08
        })
    }

    fn draw_in<X, Y>(area: &Area<'_>, plot: &Plot, lines: &[Line], x: X, y: Y) -> Option<()>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let text = ("sans-serif", TEXT_SIZE).into_font().color(&TEXT);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(52)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y)
            .ok()?;
        chart
            .configure_mesh()
            .x_desc(plot.x.name)
            .y_desc(plot.y.name)
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&short)
            .y_label_formatter(&short)
            .label_style(text.clone())
            .axis_desc_style(text)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()
            .ok()?;
        for (line, index) in lines.iter().zip(0..) {
            let colour = series(index);
            let points = line.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
                .ok()?;
            let dots = points.map(|point| Circle::new(point, 4, colour.filled()));
            chart.draw_series(dots).ok()?;
        }
        Some(())
    }

    fn draw_bars(area: &Area<'_>, plot: &Plot, bars: &[(String, Vec<f64>)]) -> Option<()> {
        let most = bars
            .iter()
            .map(|(_, parts)| parts.iter().sum::<f64>())
            .fold(0.0, f64::max);
        if most <= 0.0 || !most.is_finite() {
            return None;
        }
        let count = u32::try_from(bars.len()).ok()?;
        let text = ("sans-serif", TEXT_SIZE).into_font().color(&TEXT);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(52)
            .y_label_area_size(190)
            .build_cartesian_2d(0.0..most * 1.05, 0.0..f64::from(count))
            .ok()?;
        chart
            .configure_mesh()
            .x_desc(plot.x.name)
            .x_labels(6)
            .y_labels(0)
            .x_label_formatter(&short)
            .label_style(text.clone())
            .axis_desc_style(text.clone())
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .disable_y_mesh()
            .draw()
            .ok()?;
        let right = text.pos(Pos::new(HPos::Right, VPos::Center));
        for ((name, parts), row) in bars.iter().zip(0..count) {
            let bottom = f64::from(count - row) - 1.0;
            let mut left = 0.0;
            for (part, index) in parts.iter().zip(0..) {
                let corners = [(left, bottom + 0.18), (left + part, bottom + 0.82)];
                let bar = Rectangle::new(corners, series(index).filled());
                chart.draw_series([bar]).ok()?;
                left += part;
            }
            let at = chart.backend_coord(&(0.0, bottom + 0.5));
            area.draw_text(name, &right, (at.0 - 8, at.1)).ok()?;
        }
        Some(())
    }

    /// `12k`, `1.5M`, `0.25`
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "as the plot's builder wants it"
    )]
    fn short(value: &f64) -> String {
        let trimmed = |value: f64, unit: &str| {
            let text = format!("{value:.1}");
            format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
        };
        match value.abs() {
            size if size >= 1e6 => trimmed(value / 1e6, "M"),
            size if size >= 1e4 => trimmed(value / 1e3, "k"),
            size if size >= 1.0 || size == 0.0 => trimmed(*value, ""),
            _ => format!("{value:.2}"),
        }
    }

    /// The page's colours in place of those that stand for them, and its width.
    fn themed(svg: &str, title: &str, height: u32) -> String {
        let (width, _) = SIZE;
        let mut text = svg.replace("\"#000000\"", "\"currentColor\"");
        text = text.replace("\"#FE0000\"", "\"var(--grid)\"");
        for index in 0..16u8 {
            let marker = format!("\"#FD00{index:02X}\"");
            text = text.replace(&marker, &format!("\"var(--series-{index})\""));
        }
        let size = format!("width=\"{width}\" height=\"{height}\" ");
        let title = title
            .replace('&', "&amp;")
            .replace('"', "&quot;")
            .replace('<', "&lt;");
        text.replace(&size, &format!("role=\"img\" aria-label=\"{title}\" "))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn plot(shape: Shape) -> Plot {
            let axis = |name, is_logarithmic| Axis {
                name,
                is_logarithmic,
            };
            Plot {
                title: "Rate".to_owned(),
                x: axis("connections", true),
                y: axis("requests per second", false),
                shape,
            }
        }

        #[test]
        fn colours_are_those_of_the_page() {
            let line = |name: &str| Line {
                name: name.to_owned(),
                points: vec![(1.0, 10_000.0), (10.0, 50_000.0)],
            };
            let lines = plot(Shape::Lines(vec![line("a"), line("b")]));
            let text = svg(&lines).unwrap();
            assert!(
                text.contains("var(--series-1)") && text.contains("currentColor"),
                "{text}"
            );
            assert!(
                !text.contains("\"#F") && !text.contains("width=\"600\" height"),
                "{text}"
            );
            let bars = plot(Shape::Bars {
                parts: vec!["server", "PHP"],
                bars: vec![("ours".to_owned(), vec![1.0, 2.0])],
            });
            let text = svg(&bars).unwrap();
            assert!(
                text.contains("var(--series-1)") && text.contains("ours"),
                "{text}"
            );
        }

        #[test]
        fn what_has_no_points_is_not_drawn() {
            assert_eq!(svg(&plot(Shape::Lines(Vec::new()))), None);
            let nothing = Line {
                name: "a".to_owned(),
                points: vec![(0.0, f64::NAN)],
            };
            assert_eq!(svg(&plot(Shape::Lines(vec![nothing]))), None);
        }
    }
}
