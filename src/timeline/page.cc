#include "timeline/page.h"

#include "base/file.h"
#include "timeline/page_data.h"
#include "timeline/page_parts.h"

namespace rondo::timeline {
std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string page(std::string_view title, std::span<const Timeline> timelines, const PageLimits& limits) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
  out += html_text(title);
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
