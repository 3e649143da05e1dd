// RONDO_CHECK*: a bug prints both values and aborts. User input must never reach one.
#pragma once

#include <fmt/format.h>

#include <string>

namespace rondo::internal {

[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& detail);

template <class A, class B>
[[noreturn]] void check_op_failed(const char* file, int line, const char* expression, const A& a,
                                  const B& b) {
  check_failed(file, line, expression, fmt::format("{} vs {}", a, b));
}

}  // namespace rondo::internal

#define RONDO_CHECK(condition)                                             \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::rondo::internal::check_failed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define RONDO_CHECK_OP_(a, op, b)                                                               \
  do {                                                                                          \
    const auto& rondo_check_a_ = (a);                                                           \
    const auto& rondo_check_b_ = (b);                                                           \
    if (!(rondo_check_a_ op rondo_check_b_)) [[unlikely]]                                       \
      ::rondo::internal::check_op_failed(__FILE__, __LINE__, #a " " #op " " #b, rondo_check_a_, \
                                         rondo_check_b_);                                       \
  } while (false)

#define RONDO_CHECK_EQ(a, b) RONDO_CHECK_OP_(a, ==, b)
#define RONDO_CHECK_NE(a, b) RONDO_CHECK_OP_(a, !=, b)
#define RONDO_CHECK_LT(a, b) RONDO_CHECK_OP_(a, <, b)
#define RONDO_CHECK_LE(a, b) RONDO_CHECK_OP_(a, <=, b)
#define RONDO_CHECK_GT(a, b) RONDO_CHECK_OP_(a, >, b)
#define RONDO_CHECK_GE(a, b) RONDO_CHECK_OP_(a, >=, b)
