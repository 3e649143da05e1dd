// The page's style sheet and script: page.css and page.js, put into the program by the build.
#pragma once

#include <string_view>

namespace rondo::timeline {

std::string_view page_style();
std::string_view page_script();

}  // namespace rondo::timeline
