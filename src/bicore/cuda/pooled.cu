// The pooled tangent kernel of a stack of 3×3 convolutions, one pair of images a block.
//
// Position pairs (p, p') whose displacement p − p' is the same modulo (HEIGHT, WIDTH) form a class: HEIGHT·WIDTH pairs, one
// for each p. Convolutions of stride 1 and activations keep a class to itself, so a warp carries one class through all
// layers: a lane a column, the rows in registers. Neighbours in a row come by shuffles. A neighbour counts only where
// neither p nor p' leaves its image: `left`, `right` and the seam between rows dy − 1 and dy see to that.
//
// All factors of the layers are folded into the norms: `norms` holds for each image, layer and position the inverse
// standard deviation that turns a covariance into a correlation, and the factor that turns κ1 into the next covariance.
// Rows of the second image are stored twice, one set below the other, so that y − dy never wraps.

#ifndef WIDTH
#define WIDTH 32
#define HEIGHT 32
#define CHANNELS 3
#define BIAS 0
#define WARPS 8
#define LAYERS 5
#define RESIDENT 2
#endif

// κ0 = 1 − t P(t²), κ1 = c + t³ Q(t²) with t = √(1 − c), 0 ≤ c ≤ 1: P and Q to 3e-8 and 1e-8.
__device__ __forceinline__ float root(float u) {
    float t;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(u));
    return t;
}

__device__ __forceinline__ float turned(float u, float t) {  // arccos(1 − u)/π
    float p = 0.00083133f;
    p = fmaf(p, u, -0.00116719f);
    p = fmaf(p, u, 0.00220322f);
    p = fmaf(p, u, 0.00189248f);
    p = fmaf(p, u, 0.00858256f);
    p = fmaf(p, u, 0.03749901f);
    p = fmaf(p, u, 0.45015856f);
    return p * t;
}

__device__ __forceinline__ float excess(float u, float t) {  // κ1 − c for c = 1 − u ≥ 0
    float q = 2.23630342e-4f;
    q = fmaf(q, u, -1.79666022e-4f);
    q = fmaf(q, u, 8.38204971e-4f);
    q = fmaf(q, u, 2.29636988e-3f);
    q = fmaf(q, u, 1.50274039e-2f);
    q = fmaf(q, u, 3.00103935e-1f);
    return q * (u * t);
}

template <bool SIGNED>
__device__ __forceinline__ void activate(float correlation, float& kappa0, float& kappa1) {
    float c = __saturatef(SIGNED ? fabsf(correlation) : correlation);
    float u = 1.0f - c, t = root(u);
    float turn = turned(u, t), more = excess(u, t);
    if (SIGNED && correlation < 0) {
        kappa0 = turn;
        kappa1 = more;
    } else {
        kappa0 = 1.0f - turn;
        kappa1 = c + more;
    }
}

// One activation and the convolution after it, in place. `bias` is in the units of the next covariance.
template <bool SIGNED>
__device__ __forceinline__ void layer(float (&s)[HEIGHT], float (&t)[HEIGHT], const float2* own, const float2* other, int seam,
                                      int lane_left, int lane_right, float left, float right, float bias) {
    float s_before = 0.0f, t_before = 0.0f;
#pragma unroll
    for (int y = 0; y < HEIGHT; ++y) {
        float2 a = own[y * WIDTH], b = other[y * WIDTH];
        float kappa0, kappa1;
        activate<SIGNED>(s[y] * (a.x * b.x), kappa0, kappa1);
        float covariance = kappa1 * (a.y * b.y);
        float tangent = fmaf(t[y], kappa0, covariance);
        float s_row = fmaf(left, __shfl_sync(~0u, covariance, lane_left), covariance);
        float t_row = fmaf(left, __shfl_sync(~0u, tangent, lane_left), tangent);
        s_row = fmaf(right, __shfl_sync(~0u, covariance, lane_right), s_row);
        t_row = fmaf(right, __shfl_sync(~0u, tangent, lane_right), t_row);
        float joined = y == seam ? 0.0f : 1.0f;
        if (y > 0) {
            s[y - 1] = fmaf(joined, s_row, s[y - 1]);
            t[y - 1] = fmaf(joined, t_row, t[y - 1]);
        }
        s[y] = fmaf(joined, s_before, s_row);
        t[y] = fmaf(joined, t_before, t_row);
        if (BIAS) {
            s[y] += bias;
            t[y] += bias;
        }
        s_before = s_row;
        t_before = t_row;
    }
}

template <bool SIGNED>
__device__ __forceinline__ void readout(float (&s)[HEIGHT], float (&t)[HEIGHT], const float2* own, const float2* other,
                                        float& s_sum, float& t_sum) {
    s_sum = t_sum = 0.0f;
#pragma unroll
    for (int y = 0; y < HEIGHT; ++y) {
        float2 a = own[y * WIDTH], b = other[y * WIDTH];
        float kappa0, kappa1;
        activate<SIGNED>(s[y] * (a.x * b.x), kappa0, kappa1);
        s_sum = fmaf(kappa1, a.y * b.y, s_sum);
        t_sum = fmaf(t[y], kappa0, t_sum);
    }
}

// images: (n, CHANNELS, HEIGHT, WIDTH) for the rows, with 2·HEIGHT for the columns; norms likewise with a layer for a channel.
// result: for each pair the sums over all position pairs of the last activation's covariance and tangent kernel.
extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT)
pooled(const float* __restrict__ row_images, const float* __restrict__ column_images, const float2* __restrict__ row_norms,
       const float2* __restrict__ column_norms, const int2* __restrict__ pairs, const float* __restrict__ biases,
       int first_trained, double2* __restrict__ result) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, x = lane < WIDTH ? lane : 0;
    const int2 pair = pairs[blockIdx.x];
    const float* image = row_images + (size_t)pair.x * CHANNELS * HEIGHT * WIDTH;
    const float* second = column_images + (size_t)pair.y * CHANNELS * 2 * HEIGHT * WIDTH;
    const float2* norms = row_norms + (size_t)pair.x * LAYERS * HEIGHT * WIDTH;
    const float2* others = column_norms + (size_t)pair.y * LAYERS * 2 * HEIGHT * WIDTH;
    const int lane_left = x == 0 ? WIDTH - 1 : x - 1, lane_right = x == WIDTH - 1 ? 0 : x + 1;
    double s_total = 0.0, t_total = 0.0;
    for (int turn = 0; turn < HEIGHT * WIDTH; turn += WARPS) {  // as many turns for every warp: none diverges
        const int cls = min(turn + warp, HEIGHT * WIDTH - 1);
        const int dx = cls % WIDTH, dy = cls / WIDTH;
        const int x_other = x < dx ? x - dx + WIDTH : x - dx;
        const float left = x == 0 || x == dx ? 0.0f : 1.0f;
        const float right = x == WIDTH - 1 || x == (dx == 0 ? WIDTH - 1 : dx - 1) ? 0.0f : 1.0f;
        const int seam = dy == 0 ? -1 : dy;
        const int shift = (HEIGHT - dy) * WIDTH + x_other;
        float s[HEIGHT], t[HEIGHT];
        float before = 0.0f;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            float value = 0.0f;
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                value = fmaf(image[(c * HEIGHT + y) * WIDTH + x], second[(c * 2 * HEIGHT + y) * WIDTH + shift], value);
            float row = fmaf(left, __shfl_sync(~0u, value, lane_left), value);
            row = fmaf(right, __shfl_sync(~0u, value, lane_right), row);
            float joined = y == seam ? 0.0f : 1.0f;
            if (y > 0) s[y - 1] = fmaf(joined, row, s[y - 1]);
            s[y] = fmaf(joined, before, row);
            if (BIAS) s[y] += biases[0];
            before = row;
        }
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) t[y] = first_trained ? s[y] : 0.0f;
        const float2 *own = norms + x, *other = others + shift;
        float s_sum, t_sum;
        if (LAYERS == 1) {
            readout<true>(s, t, own, other, s_sum, t_sum);
        } else {
            layer<true>(s, t, own, other, seam, lane_left, lane_right, left, right, BIAS ? biases[1] : 0.0f);
            #pragma unroll 1
            for (int l = 1; l < LAYERS - 1; ++l)
                layer<false>(s, t, own + l * HEIGHT * WIDTH, other + l * 2 * HEIGHT * WIDTH, seam, lane_left, lane_right, left,
                             right, BIAS ? biases[l + 1] : 0.0f);
            own += (LAYERS - 1) * HEIGHT * WIDTH;
            other += (LAYERS - 1) * 2 * HEIGHT * WIDTH;
            readout<false>(s, t, own, other, s_sum, t_sum);
        }
        if (lane < WIDTH && turn + warp < HEIGHT * WIDTH) {
            s_total += s_sum;
            t_total += t_sum;
        }
    }
    __shared__ double2 partial[WARPS];
    for (int offset = 16; offset; offset >>= 1) {
        s_total += __shfl_down_sync(~0u, s_total, offset);
        t_total += __shfl_down_sync(~0u, t_total, offset);
    }
    if (lane == 0) partial[warp] = make_double2(s_total, t_total);
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < WARPS; ++w) {
            s_total += partial[w].x;
            t_total += partial[w].y;
        }
        result[blockIdx.x] = make_double2(s_total, t_total);
    }
}
