// Constants of the contract's exp and log, shared by the vector kernels and the plain reference. Changing one
// changes results.
#pragma once

namespace rondo::kernels::math {

inline constexpr float kLog2E = 0x1.715476p+0F;
inline constexpr float kLn2High = 0x1.62e430p-1F;
inline constexpr float kLn2Low = -0x1.05c610p-29F;
inline constexpr float kRoundMagic = 0x1.8p+23F;  // adding it rounds to an integer, to nearest even

// exp is +0 below the first (2^-126 and less: no denormals) and infinity above the second.
inline constexpr float kExpUnderflow = -87.33F;
inline constexpr float kExpOverflow = 88.7F;
// exp(r) = 1 + r + r^2 * (c[0] + c[1] * r + …) for |r| <= ln(2) / 2: minimax in relative error, 0.06 ulp.
inline constexpr float kExpPoly[] = {0x1.fffffcp-2F, 0x1.555490p-3F, 0x1.5558fcp-5F, 0x1.123b9ap-7F,
                                     0x1.6a215ap-10F};

// log(2^e * (1 + f)), 1 + f in [sqrt(1/2), sqrt(2)) = e * ln(2) + f - f^2 / 2 + f^3 * (c[0] + c[1] * f + …).
inline constexpr int kLogSqrtHalfBits = 0x3F3504F3;
inline constexpr float kLogPoly[] = {0x1.555548p-2F,  -0x1.000006p-2F, 0x1.99a4b6p-3F,
                                     -0x1.555c4ep-3F, 0x1.233768p-3F,  -0x1.fc2208p-4F,
                                     0x1.e6f06ap-4F,  -0x1.de3c16p-4F, 0x1.1457a6p-4F};

}  // namespace rondo::kernels::math
