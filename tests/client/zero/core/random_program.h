// What a trainer might do: random operators over random parameters, a few steps of them.
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
  // Operators that give it a gradient; 0: any number. Other than 1: the gradient has a place of its
  // own.
  int backward_uses = 1;
};

struct SimulatedOperator {
  enum class Kind { kForward, kBackward, kEvaluate };
  Kind kind = Kind::kForward;
  std::vector<uint32_t> parameters;
  // Operators that begin before this one ends: 0 for one after the other.
  int open_for = 0;
  uint64_t keeps_units = 0;      // of workspace, from a forward to its backward
  uint64_t scratch_units = 0;    // while it runs
  int mate = -1;                 // of a backward: the operator whose workspace it gives back
  bool writes_gradients = true;  // of a backward
  // Gradients that are added outside of any operator once this one has ended.
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
  bool weights_stay = false;  // until they change, and all gradients have places of their own
  bool hosts_copy = false;    // weights are gathered over all ranks once between updates
  bool nested = false;        // some operators overlap
  bool grows = false;         // workspace does
  uint64_t arena_units = 0;
  // Of the fullest moment on any rank: no arena below it will do.
  uint64_t least_units = 0;
  uint32_t seed = 0;
};

SimulatedProgram MakeRandomProgram(uint32_t seed);

// How much more workspace each of this rank's operators keeps than its keeps_units.
uint64_t ExtraUnits(const SimulatedProgram& program, int rank, size_t micro_batch);

inline bool HasSeparateGradient(const SimulatedParameter& parameter) {
  return parameter.backward_uses != 1;
}
// Chunks [0, n) have weights, [n, 2 n) their separate gradients. Ascending.
std::vector<uint32_t> ChunksOf(const SimulatedProgram& program, const SimulatedOperator& op);
// A chunk has a separate gradient if any of its parameters has.
bool IsSeparate(const SimulatedProgram& program, uint32_t chunk);

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_CORE_RANDOM_PROGRAM_H_
