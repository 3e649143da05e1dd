// How often property tests repeat their random runs: once in `unit`, many times in `slow`.
#pragma once

namespace rondo {

#ifdef RONDO_TEST_TIMES
inline constexpr int kTestTimes = RONDO_TEST_TIMES;
#else
inline constexpr int kTestTimes = 1;
#endif

}  // namespace rondo
