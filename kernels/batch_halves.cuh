// A part of batch.cu: floats of 16 bits.
//
// Each operation goes by `float`: both operands become a `float`, and its result is rounded to the nearest number, of
// two equally near ones to the even one. The host does the same (`crates/host/src/moves/halves.rs`). A sum that is rounded
// once has the same bits, because a `float` has more than twice as many, and two more. So sums are left to the machine,
// which has two of them in a word.

// IEEE 754's float of 16 bits.
struct F16 {
    u16 bits;
    static DEV F16 of(float value) { return {f16_of(value)}; }
    static DEV u32 add(u32 a, u32 b) { return add_f16x2(a, b); }
    DEV float wide() const { return float_of_f16(bits); }
};
// The upper half of a `float`.
struct Bf16 {
    u16 bits;
    static DEV Bf16 of(float value) { return {bf16_of(value)}; }
    static DEV u32 add(u32 a, u32 b) { return add_bf16x2(a, b); }
    DEV float wide() const { return __uint_as_float((u32)bits << 16); }
};

#define HALF(T)                                                              \
    DEV T operator+(T a, T b) { return {(u16)T::add(a.bits, b.bits)}; }      \
    DEV T operator*(T a, T b) { return T::of(a.wide() * b.wide()); }         \
    DEV bool operator<(T a, T b) { return a.wide() < b.wide(); }             \
    DEV bool operator>(T a, T b) { return a.wide() > b.wide(); }             \
    DEV bool operator!=(T a, T b) { return a.wide() != b.wide(); }
HALF(F16)
HALF(Bf16)
#undef HALF
