// What a ReLU does to a covariance and to the tangent kernel, for every kernel of this folder; comes before their sources.
// κ0 = (π − arccos c)/π and κ1 = (√(1 − c²) + (π − arccos c) c)/π. DOUBLE is 0 or 1, GAIN a factor on κ0.

#if DOUBLE
typedef double real;
typedef double2 real2;
#else
typedef float real;
typedef float2 real2;
#endif
#define ONE ((real)1)

__device__ __forceinline__ real saturated(real c) {
#if DOUBLE
    return fmin(fmax(c, 0.0), 1.0);
#else
    return __saturatef(c);
#endif
}

// GAIN·arccos(c)/π and κ1 − c for the gap u = 1 − c, 0 ≤ u ≤ 1. In float32 by polynomials, to 3e-8 and 1e-8.
__device__ __forceinline__ void turn(real u, real& turned, real& excess) {
#if DOUBLE
    const double half = sqrt(0.5 * u), angle = 2.0 * asin(half), pi = 3.14159265358979323846;
    turned = (double)(GAIN) * angle / pi;
    excess = (sqrt(u * (2.0 - u)) - angle * (1.0 - u)) / pi;
#else
    const float g = (float)(GAIN);
    float t;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(u));
    float p = 0.00083133f * g;
    p = fmaf(p, u, -0.00116719f * g);
    p = fmaf(p, u, 0.00220322f * g);
    p = fmaf(p, u, 0.00189248f * g);
    p = fmaf(p, u, 0.00858256f * g);
    p = fmaf(p, u, 0.03749901f * g);
    p = fmaf(p, u, 0.45015856f * g);
    turned = p * t;
    float q = 2.23630342e-4f;
    q = fmaf(q, u, -1.79666022e-4f);
    q = fmaf(q, u, 8.38204971e-4f);
    q = fmaf(q, u, 2.29636988e-3f);
    q = fmaf(q, u, 1.50274039e-2f);
    q = fmaf(q, u, 3.00103935e-1f);
    excess = q * (u * t);
#endif
}

// GAIN·κ0 and κ1. Only the first activation can meet a negative correlation.
template <bool SIGNED>
__device__ __forceinline__ void activate(real correlation, real& kappa0, real& kappa1) {
    const real c = saturated(SIGNED ? fabs(correlation) : correlation);
    real turned, excess;
    turn(ONE - c, turned, excess);
    if (SIGNED && correlation < 0) {
        kappa0 = turned;
        kappa1 = excess;
    } else {
        kappa0 = (real)(GAIN) - turned;
        kappa1 = c + excess;
    }
}
