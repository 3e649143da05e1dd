// sweep_page(): a line chart of a sweep as one HTML file.
#include <algorithm>
#include <array>

#include "sim/sweep.h"
#include "timeline/page.h"

namespace rondo::sim {
namespace {

constexpr double kWidth = 900.0;
constexpr double kHeight = 420.0;
constexpr double kMargin = 70.0;
// Distinguishable without colour vision, too (Okabe and Ito's palette).
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};

/// Places points on the chart.
struct Scale {
  double most = 0.0;
  std::size_t num_points = 0;

  double x(std::size_t point) const {
    const double share =
        num_points < 2 ? 0.5 : static_cast<double>(point) / static_cast<double>(num_points - 1);
    return kMargin + share * (kWidth - 2 * kMargin);
  }
  double y(double value) const { return kHeight - kMargin - value / most * (kHeight - 2 * kMargin); }
};

std::string grid(const Scale& scale, const std::vector<SweepPoint>& points) {
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    const double value = scale.most * i / 4;
    svg += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='#ddd'/>"
        "<text x='{}' y='{:.1f}' text-anchor='end'>{:.0f}</text>\n",
        kMargin, kWidth - kMargin, scale.y(value), scale.y(value), kMargin - 6, scale.y(value) + 4, value);
  }
  for (std::size_t p = 0; p < points.size(); ++p) {
    svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>\n", scale.x(p),
                       kHeight - kMargin + 20 + 16 * static_cast<double>(p % 2),
                       timeline::html_text(points[p].setting));
  }
  return svg;
}

std::string line(const Scale& scale, const std::vector<SweepPoint>& points, std::size_t variant) {
  const char* colour = kColours[variant % kColours.size()];
  std::string path;
  std::string marks;
  for (std::size_t p = 0; p < points.size(); ++p) {
    const Spread value = spread_of(points[p].variants[variant], speed_of);
    path += fmt::format("{:.1f},{:.1f} ", scale.x(p), scale.y(value.mean));
    marks += fmt::format(
        "<line x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}' stroke='{3}'/>"
        "<circle cx='{0:.1f}' cy='{4:.1f}' r='3.5' fill='{3}'><title>{5}: {6:.0f} tokens/s, "
        "{7:.0f} to {8:.0f}</title></circle>\n",
        scale.x(p), scale.y(value.least), scale.y(value.most), colour, scale.y(value.mean),
        timeline::html_text(points[p].setting), value.mean, value.least, value.most);
  }
  const double y = 24.0 + 16.0 * static_cast<double>(variant);
  return fmt::format(
      "<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>\n{}"
      "<text x='{}' y='{}' fill='{}' text-anchor='end'>{}</text>\n",
      path, colour, marks, kWidth - 8, y, colour,
      timeline::html_text(points.front().variants[variant].label));
}

}  // namespace

std::string sweep_page(std::string_view title, const std::vector<SweepPoint>& points) {
  Scale scale{.num_points = points.size()};
  for (const SweepPoint& point : points) {
    for (const VariantOutcomes& variant : point.variants) {
      scale.most = std::max(scale.most, spread_of(variant, speed_of).most);
    }
  }
  std::string svg = grid(scale, points);
  for (std::size_t v = 0; v < points.front().variants.size(); ++v) svg += line(scale, points, v);
  return fmt::format(
      "<!doctype html><html><head><meta charset='utf-8'><title>{0}</title></head>\n"
      "<body style='font-family:sans-serif'><h1>{0}</h1><p>Tokens per second; mean over seeds, lines from "
      "least "
      "to most.</p>\n<svg viewBox='0 0 {1} {2}' style='max-width:{1}px' font-size='11'>\n{3}</svg>\n"
      "<pre>{4}</pre></body></html>\n",
      timeline::html_text(title), kWidth, kHeight, svg, timeline::html_text(sweep_table(points)));
}

}  // namespace rondo::sim
