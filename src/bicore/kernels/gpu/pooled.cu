// The pooled tangent kernel of a stack of 3×3 convolutions, one pair of images a block.
//
// Position pairs (p, p') whose displacement p − p' is the same modulo (HEIGHT, WIDTH) form a class: HEIGHT·WIDTH pairs, one
// for each p. Convolutions of stride 1 and activations keep a class to itself, so a warp carries one class through all
// layers: a lane a column, the rows in registers. Neighbours in a row come by shuffles. A neighbour counts only where
// neither p nor p' leaves its image: `left`, `right` and the seam between rows dy − 1 and dy see to that.
//
// All factors of the layers are folded into GAIN, which multiplies κ0, and into the norms: for each image, layer and
// position the inverse standard deviation that turns a covariance into a correlation, and the factor that turns κ1 into the
// next covariance. Rows of the second image are stored twice, one set below the other, so that y − dy never wraps.
//
// Given by the compiler's command line: WIDTH, HEIGHT (≤ 32 columns), CHANNELS, LAYERS (of 3×3 and ReLU), BIAS (0 or 1),
// GAIN, WARPS a block, RESIDENT blocks a multiprocessor, DOUBLE (0 or 1).

// Where a lane's neighbours are, whether they count, and the row that has nothing above it.
struct Place {
    int lane_left, lane_right, seam;
    real left, right;
};

// A sum over the 3×3 window, a row at a time: `rows[y]` is complete once row y + 1 was given.
__device__ __forceinline__ void gather(real (&rows)[HEIGHT], real& before, real value, int y, const Place& place, real joined,
                                       real bias) {
    real row = fma(place.left, __shfl_sync(~0u, value, place.lane_left), value);
    row = fma(place.right, __shfl_sync(~0u, value, place.lane_right), row);
    if (y > 0) rows[y - 1] = fma(joined, row, rows[y - 1]);
    rows[y] = fma(joined, before, row);
    if (BIAS) rows[y] += bias;
    before = row;
}

// One activation and the convolution after it, in place. `bias` is in the units of the next covariance.
template <bool SIGNED>
__device__ __forceinline__ void layer(real (&s)[HEIGHT], real (&t)[HEIGHT], const real2* own, const real2* other,
                                      const Place& place, real bias) {
    real s_before = 0, t_before = 0;
    int seam = place.seam;
    asm volatile("" : "+r"(seam));  // else the compiler keeps a register for each row's comparison from layer to layer
#pragma unroll
    for (int y = 0; y < HEIGHT; ++y) {
        const real2 a = own[y * WIDTH], b = other[y * WIDTH];
        real kappa0, kappa1;
        activate<SIGNED>(s[y] * (a.x * b.x), kappa0, kappa1);
        const real covariance = kappa1 * (a.y * b.y), tangent = fma(t[y], kappa0, covariance);
        const real joined = y == seam ? (real)0 : ONE;
        gather(s, s_before, covariance, y, place, joined, bias);
        gather(t, t_before, tangent, y, place, joined, bias);
    }
}

template <bool SIGNED>
__device__ __forceinline__ void readout(const real (&s)[HEIGHT], const real (&t)[HEIGHT], const real2* own, const real2* other,
                                        real& s_sum, real& t_sum) {
    s_sum = t_sum = 0;
#pragma unroll
    for (int y = 0; y < HEIGHT; ++y) {
        const real2 a = own[y * WIDTH], b = other[y * WIDTH];
        real kappa0, kappa1;
        activate<SIGNED>(s[y] * (a.x * b.x), kappa0, kappa1);
        s_sum = fma(kappa1, a.y * b.y, s_sum);
        t_sum = fma(t[y], kappa0, t_sum);
    }
}

// images: (n, CHANNELS, HEIGHT, WIDTH) for the rows, with 2·HEIGHT for the columns; norms likewise with a layer for a channel.
// result: for each pair the sums over all position pairs of the last activation's covariance and tangent kernel.
extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT)
pooled(const real* __restrict__ row_images, const real* __restrict__ column_images, const real2* __restrict__ row_norms,
       const real2* __restrict__ column_norms, const int2* __restrict__ pairs, const real* __restrict__ biases,
       int first_trained, double2* __restrict__ result) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, x = lane < WIDTH ? lane : 0, area = HEIGHT * WIDTH;
    const int2 pair = pairs[blockIdx.x];
    const real* image = row_images + (size_t)pair.x * CHANNELS * area + x;
    const real2* norms = row_norms + (size_t)pair.x * LAYERS * area + x;
    Place place;
    place.lane_left = x == 0 ? WIDTH - 1 : x - 1;
    place.lane_right = x == WIDTH - 1 ? 0 : x + 1;
    double s_total = 0.0, t_total = 0.0;
    for (int turn = 0; turn < area; turn += WARPS) {  // as many turns for every warp: none diverges
        const int cls = min(turn + warp, area - 1), dx = cls % WIDTH, dy = cls / WIDTH;
        const int shift = (HEIGHT - dy) * WIDTH + (x < dx ? x - dx + WIDTH : x - dx);
        place.left = x == 0 || x == dx ? (real)0 : ONE;
        place.right = x == WIDTH - 1 || x == (dx == 0 ? WIDTH - 1 : dx - 1) ? (real)0 : ONE;
        place.seam = dy == 0 ? -1 : dy;
        const real* second = column_images + (size_t)pair.y * CHANNELS * 2 * area + shift;
        real s[HEIGHT], t[HEIGHT], before = 0;
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) {
            real value = 0;
#pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                value = fma(image[(c * HEIGHT + y) * WIDTH], second[(c * 2 * HEIGHT + y) * WIDTH], value);
            gather(s, before, value, y, place, y == place.seam ? (real)0 : ONE, BIAS ? biases[0] : (real)0);
        }
#pragma unroll
        for (int y = 0; y < HEIGHT; ++y) t[y] = first_trained ? s[y] : (real)0;
        const real2 *own = norms, *other = column_norms + (size_t)pair.y * LAYERS * 2 * area + shift;
        real s_sum, t_sum;
        if (LAYERS == 1) {
            readout<true>(s, t, own, other, s_sum, t_sum);
        } else {
            layer<true>(s, t, own, other, place, BIAS ? biases[1] : (real)0);
#pragma unroll 1
            for (int l = 1; l < LAYERS - 1; ++l)
                layer<false>(s, t, own + l * area, other + l * 2 * area, place, BIAS ? biases[l + 1] : (real)0);
            readout<false>(s, t, own + (LAYERS - 1) * area, other + (LAYERS - 1) * 2 * area, s_sum, t_sum);
        }
        if (lane < WIDTH && turn + warp < area) {
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
