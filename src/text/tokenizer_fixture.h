// A small tokenizer.json for tests.
#pragma once

#include <string>
#include <string_view>

namespace rondo::text {

/// A tokenizer of the 256 bytes (ids 0 to 255, in byte order), a few merges of English and of UTF-8
/// sequences, the special token "<|end|>" (kFixtureEnd), the added token "<tool>", and GPT-2's
/// pre-tokenizer; changed by `patch`, a JSON merge patch (RFC 7396).
std::string fixture_json(std::string_view patch = "{}");

inline constexpr int kFixtureEnd = 266;
inline constexpr int kFixtureTool = 267;

}  // namespace rondo::text
