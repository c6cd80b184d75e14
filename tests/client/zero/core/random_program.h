// Random programs of a trainer: operators over random parameters, for a few steps.
#ifndef GEMINID_TESTS_CLIENT_ZERO_CORE_RANDOM_PROGRAM_H_
#define GEMINID_TESTS_CLIENT_ZERO_CORE_RANDOM_PROGRAM_H_

#include <cstdint>
#include <random>
#include <vector>

namespace geminid::zero {

inline constexpr uint64_t kUnit = 4096;

struct SimulatedParameter {
  uint32_t chunk = 0;
  bool trainable = true;
  // The number of operators that give it a gradient; 0: any. For other values than 1 the gradient
  // has a place of its own.
  int backward_uses = 1;
};

struct SimulatedOperator {
  enum class Kind { kForward, kBackward, kEvaluate };
  Kind kind = Kind::kForward;
  std::vector<uint32_t> parameters;
  // The number of operators that begin before this one ends. 0: none.
  int open_for = 0;
  uint64_t keeps_units = 0;      // workspace kept from a forward to its backward pass
  uint64_t scratch_units = 0;    // workspace while it runs
  int mate = -1;                 // of a backward pass: the operator whose workspace it returns
  bool writes_gradients = true;  // of a backward pass
  // Gradients that are added outside of any operator after this one has ended.
  std::vector<uint32_t> adds_gradients;

  friend bool operator==(const SimulatedOperator&, const SimulatedOperator&) = default;
};

struct SimulatedMicroBatch {
  std::vector<SimulatedOperator> evaluated_before;
  std::vector<SimulatedOperator> operators;
};

struct SimulatedProgram {
  std::vector<uint64_t> chunk_units;
  std::vector<bool> chunk_trainable;
  std::vector<SimulatedParameter> parameters;
  std::vector<SimulatedMicroBatch> micro_batches;
  int accumulate = 1;
  int ranks = 1;
  bool weights_stay = false;  // until they change; all gradients have places of their own
  bool hosts_copy = false;    // weights are gathered over all ranks once between updates
  bool nested = false;        // some operators overlap
  bool grows = false;         // workspace grows
  uint64_t arena_units = 0;
  // The peak on any rank. A smaller arena does not suffice.
  uint64_t least_units = 0;
  uint32_t seed = 0;
};

SimulatedProgram MakeRandomProgram(uint32_t seed);

// The workspace that each of this rank's operators keeps in addition to its keeps_units.
uint64_t ExtraUnits(const SimulatedProgram& program, int rank, size_t micro_batch);

inline bool HasSeparateGradient(const SimulatedParameter& parameter) {
  return parameter.backward_uses != 1;
}
// Chunks [0, n) hold weights, and [n, 2 n) their separate gradients. Ascending.
std::vector<uint32_t> ChunksOf(const SimulatedProgram& program, const SimulatedOperator& op);
// A chunk has a separate gradient if one of its parameters has one.
bool IsSeparate(const SimulatedProgram& program, uint32_t chunk);

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_CORE_RANDOM_PROGRAM_H_
