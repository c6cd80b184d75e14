#include "training/data/masked_tokens.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/counter_random.h"
#include "training/nn/micro_batch.h"

namespace geminid::trainer {
namespace {

// Separates this stream from other streams of the same seed.
constexpr uint64_t kMaskStream = 0x6D61736B73;      // "masks"
constexpr uint64_t kMeasuredStream = 0x6D65617375;  // "measu"

constexpr double kMaskedShare = 0.8;  // of the tokens that are chosen
constexpr double kRandomShare = 0.1;

bool IsSpecial(const Masking& masking, int32_t token) {
  const auto number = static_cast<uint64_t>(token);
  return number == masking.mask_token ||
         std::ranges::find(masking.special_tokens, number) != masking.special_tokens.end();
}

}  // namespace

uint64_t MaskStreamOfSample(uint64_t seed, uint64_t sample) {
  return base::RandomBits(seed ^ kMaskStream, sample);
}

uint64_t MaskStreamOfStart(uint64_t first_token) {
  return base::RandomBits(kMeasuredStream, first_token);
}

void MaskSequence(const Masking& masking, uint64_t vocabulary, uint64_t stream,
                  std::span<int32_t> tokens, std::span<int32_t> targets) {
  // Each position uses three random numbers: for the choice, for the replacement, and for a random
  // token.
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t place = 0; place < tokens.size(); ++place) {
    targets[place] = kNoTarget;
    if (IsSpecial(masking, tokens[place])) continue;
    order.emplace_back(base::RandomBits(stream, 3 * place), place);
  }
  const size_t chosen = std::min<size_t>(MaskedTokens(tokens.size()), order.size());
  std::ranges::nth_element(order, order.begin() + static_cast<ptrdiff_t>(chosen));
  for (size_t i = 0; i < chosen; ++i) {
    const size_t place = order[i].second;
    targets[place] = tokens[place];
    const double what = base::UnitInterval(base::RandomBits(stream, 3 * place + 1));
    if (what < kMaskedShare) {
      tokens[place] = static_cast<int32_t>(masking.mask_token);
    } else if (what < kMaskedShare + kRandomShare) {
      tokens[place] = static_cast<int32_t>(base::RandomBits(stream, 3 * place + 2) % vocabulary);
    }
  }
}

}  // namespace geminid::trainer
