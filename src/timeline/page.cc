#include "timeline/page.h"

#include "base/file.h"
#include "timeline/page_data.h"
#include "timeline/page_parts.h"

namespace rondo::timeline {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string page(std::string_view title, std::span<const Timeline> timelines, const PageLimits& limits) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
  out += escaped(title);
  out += "</title>\n<style>\n";
  out += page_style();
  out += "</style>\n</head>\n<body>\n<main id=\"page\"></main>\n<div id=\"tip\" hidden></div>\n";
  out += "<noscript>The charts are drawn by the script in this file.</noscript>\n";
  out += "<script id=\"data\" type=\"application/json\">";
  out += page_data(title, timelines, limits);
  out += "</script>\n<script>\n";
  out += page_script();
  return out + "</script>\n</body>\n</html>\n";
}

Result<void> write_page(const std::filesystem::path& path, std::string_view title,
                        std::span<const Timeline> timelines) {
  return replace_file(path, page(title, timelines));
}

}  // namespace rondo::timeline
