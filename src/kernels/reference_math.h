// exp, log and sigmoid of the numbers contract as plain scalar code: what every kernel must equal bit for
// bit.
#pragma once

namespace rondo::kernels::reference {

/// e^x within 1 ulp; exp(0) = 1; +0 for x < -87.33 and infinity for x > 88.7; NaN stays NaN.
float exp(float x);
/// ln(x) within 2 ulp for positive normal x; log(1) = 0; -infinity for 0 and denormals; NaN for negative x.
float log(float x);
/// e = exp(-|x|); x >= 0 ? 1 / (1 + e) : e / (1 + e).
float sigmoid(float x);

}  // namespace rondo::kernels::reference
