#include "tests/client/zero/core/random_program.h"

#include <algorithm>
#include <set>
#include <utility>

namespace geminid::zero {
namespace {

using Kind = SimulatedOperator::Kind;

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {
    program_.seed = seed;
    program_.weights_stay = seed % 4 == 3;
    program_.hosts_copy = seed % 4 == 1;
  }

  SimulatedProgram Make() {
    MakeParameters();
    MakeLayers();
    program_.ranks = Pick({1, 2, 4});
    program_.accumulate = Pick({1, 1, 2});
    program_.nested = Chance(0.35);
    program_.grows = Chance(0.4);
    SimulatedMicroBatch base = MakeMicroBatch(layers_);
    const int count = 2 * Number(2, 4);
    for (int i = 0; i < count; ++i) {
      if (i == 0 || Chance(0.6)) {
        program_.micro_batches.push_back(base);
      } else {
        program_.micro_batches.push_back(MakeMicroBatch(MutatedLayers()));
        if (Chance(0.5)) base = program_.micro_batches.back();
      }
      if (Chance(0.3)) program_.micro_batches.back().evaluated_before = Evaluation();
    }
    Measure();
    program_.arena_units =
        program_.least_units + static_cast<uint64_t>(Pick({0, 0, 0, 1, 2, 3, 6, 12, 100}));
    return std::move(program_);
  }

 private:
  struct Layer {
    std::vector<uint32_t> parameters;
    uint64_t keeps_units = 0;
    uint64_t scratch_units = 0;
    int open_for = 0;
    bool recomputed = false;
    bool adds = false;  // separate gradients are added after the operator

    friend bool operator==(const Layer&, const Layer&) = default;
  };

  int Number(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }
  int Pick(std::initializer_list<int> values) {
    return values.begin()[Number(0, static_cast<int>(values.size()) - 1)];
  }

  void MakeParameters() {
    const int chunks = Number(1, 6);
    const bool equal = Chance(0.5);
    for (int c = 0; c < chunks; ++c) {
      program_.chunk_units.push_back(equal ? 2 : static_cast<uint64_t>(Number(1, 4)));
      program_.chunk_trainable.push_back(Chance(0.8));
      for (int p = Number(1, 3); p > 0; --p) {
        program_.parameters.push_back({static_cast<uint32_t>(c), program_.chunk_trainable.back()});
      }
    }
  }

  void MakeLayers() {
    const uint32_t parameters = static_cast<uint32_t>(program_.parameters.size());
    const bool shares = Chance(0.4);
    uint32_t next = 0;
    for (int layer = Number(1, 5); layer > 0; --layer) {
      Layer made;
      for (int p = Number(1, 3); p > 0; --p) {
        if (shares && Chance(0.4)) {
          made.parameters.push_back(
              static_cast<uint32_t>(Number(0, static_cast<int>(parameters) - 1)));
        } else if (next < parameters) {
          made.parameters.push_back(next++);
        }
      }
      std::set<uint32_t> distinct(made.parameters.begin(), made.parameters.end());
      made.parameters.assign(distinct.begin(), distinct.end());
      made.keeps_units = static_cast<uint64_t>(Number(0, 2));
      made.scratch_units = static_cast<uint64_t>(Pick({0, 0, 1}));
      made.recomputed = Chance(0.2);
      made.adds = Chance(0.3);
      if (!made.parameters.empty()) layers_.push_back(made);
    }
    std::vector<int> uses(parameters, 0);
    for (const Layer& layer : layers_) {
      for (uint32_t parameter : layer.parameters) ++uses[parameter];
    }
    for (uint32_t p = 0; p < parameters; ++p) {
      int& declared = program_.parameters[p].backward_uses;
      if (uses[p] > 1) declared = Chance(0.7) ? uses[p] : 0;
      if (uses[p] <= 1 && Chance(0.2)) declared = 0;
    }
    if (layers_.empty()) layers_.push_back({{0}});
    if (program_.nested) return;
  }

  std::vector<Layer> MutatedLayers() {
    std::vector<Layer> layers = layers_;
    if (Chance(0.4)) {
      std::swap(layers[static_cast<size_t>(Number(0, static_cast<int>(layers.size()) - 1))],
                layers[static_cast<size_t>(Number(0, static_cast<int>(layers.size()) - 1))]);
    }
    for (Layer& layer : layers) {
      if (Chance(0.3) && layer.parameters.size() > 1) {
        layer.parameters.erase(layer.parameters.begin() +
                               Number(0, static_cast<int>(layer.parameters.size()) - 1));
      }
      if (Chance(0.1)) layer.keeps_units = static_cast<uint64_t>(Number(0, 2));
    }
    if (Chance(0.2) && layers.size() > 1) layers.pop_back();
    return layers;
  }

  SimulatedOperator Operator(Kind kind, const Layer& layer) {
    SimulatedOperator made;
    made.kind = kind;
    made.parameters = layer.parameters;
    made.scratch_units = layer.scratch_units;
    return made;
  }

  SimulatedMicroBatch MakeMicroBatch(const std::vector<Layer>& layers) {
    SimulatedMicroBatch made;
    std::vector<int> mates;
    for (const Layer& layer : layers) {
      mates.push_back(static_cast<int>(made.operators.size()));
      SimulatedOperator forward = Operator(Kind::kForward, layer);
      forward.keeps_units = layer.keeps_units;
      // It must not overlap its backward pass, which may overwrite the weights that it reads.
      const int left = static_cast<int>(layers.size() - mates.size());
      if (program_.nested && Chance(0.5)) forward.open_for = Number(0, std::min(left, 3));
      made.operators.push_back(forward);
      if (Chance(0.05)) made.operators.push_back(Operator(Kind::kEvaluate, Any(layers)));
    }
    // Operators that stay open also count the operators in between.
    for (size_t i = 0; i < made.operators.size(); ++i) {
      SimulatedOperator& op = made.operators[i];
      op.open_for = std::min(op.open_for, static_cast<int>(made.operators.size() - i) - 1);
    }
    for (size_t l = layers.size(); l-- > 0;) {
      if (layers[l].recomputed) made.operators.push_back(Operator(Kind::kForward, layers[l]));
      SimulatedOperator backward = Operator(Kind::kBackward, layers[l]);
      backward.mate = mates[l];
      if (layers[l].adds && !ChunksInPlace(backward.parameters)) {
        backward.writes_gradients = false;
        for (uint32_t p : backward.parameters) {
          if (program_.parameters[p].trainable) backward.adds_gradients.push_back(p);
        }
      }
      made.operators.push_back(backward);
    }
    return made;
  }

  // Whether a gradient of one of them replaces its weight.
  bool ChunksInPlace(const std::vector<uint32_t>& parameters) const {
    return std::ranges::any_of(parameters, [this](uint32_t p) {
      return !IsSeparate(program_, program_.parameters[p].chunk);
    });
  }

  const Layer& Any(const std::vector<Layer>& layers) {
    return layers[static_cast<size_t>(Number(0, static_cast<int>(layers.size()) - 1))];
  }

  std::vector<SimulatedOperator> Evaluation() {
    std::vector<SimulatedOperator> operators;
    const int rounds = Number(1, 5);
    for (int round = 0; round < rounds; ++round) {
      for (const Layer& layer : layers_) {
        operators.push_back(Operator(Kind::kEvaluate, layer));
        if (Chance(0.02)) operators.push_back(Operator(Kind::kEvaluate, Any(layers_)));
      }
    }
    return operators;
  }

  void Measure() {
    for (size_t m = 0; m < program_.micro_batches.size(); ++m) {
      for (int rank = 0; rank < program_.ranks; ++rank) {
        const uint64_t extra = ExtraUnits(program_, rank, m);
        MeasureOperators(program_.micro_batches[m].evaluated_before, 0);
        MeasureOperators(program_.micro_batches[m].operators, extra);
      }
    }
    for (uint64_t units : program_.chunk_units) {
      program_.least_units = std::max(program_.least_units, units);
    }
  }

  uint64_t UnitsOf(const std::set<uint32_t>& chunks) const {
    uint64_t units = 0;
    for (uint32_t c : chunks) units += program_.chunk_units[c % program_.chunk_units.size()];
    return units;
  }

  void MeasureOperators(const std::vector<SimulatedOperator>& operators, uint64_t extra) {
    uint64_t kept = 0;
    for (size_t i = 0; i < operators.size(); ++i) {
      const SimulatedOperator& op = operators[i];
      std::set<uint32_t> chunks;
      for (size_t j = 0; j <= i; ++j) {
        if (j < i && j + static_cast<size_t>(operators[j].open_for) < i) continue;
        for (uint32_t chunk : ChunksOf(program_, operators[j])) chunks.insert(chunk);
      }
      if (op.keeps_units > 0) kept += op.keeps_units + extra;
      program_.least_units =
          std::max(program_.least_units, UnitsOf(chunks) + kept + op.scratch_units);
      for (uint32_t p : op.adds_gradients) {
        std::set<uint32_t> with = chunks;
        with.insert(program_.parameters[p].chunk +
                    static_cast<uint32_t>(program_.chunk_units.size()));
        program_.least_units = std::max(program_.least_units, UnitsOf(with) + kept);
      }
      if (op.mate >= 0 && operators[static_cast<size_t>(op.mate)].keeps_units > 0) {
        kept -= operators[static_cast<size_t>(op.mate)].keeps_units + extra;
      }
    }
  }

  std::mt19937 random_;
  SimulatedProgram program_;
  std::vector<Layer> layers_;
};

}  // namespace

bool IsSeparate(const SimulatedProgram& program, uint32_t chunk) {
  return std::ranges::any_of(program.parameters,
                             [&program, chunk](const SimulatedParameter& parameter) {
                               return parameter.chunk == chunk && parameter.trainable &&
                                      (program.weights_stay || HasSeparateGradient(parameter));
                             });
}

std::vector<uint32_t> ChunksOf(const SimulatedProgram& program, const SimulatedOperator& op) {
  std::set<uint32_t> chunks;
  for (uint32_t p : op.parameters) {
    const SimulatedParameter& parameter = program.parameters[p];
    chunks.insert(parameter.chunk);
    if (op.kind == Kind::kBackward && op.writes_gradients && parameter.trainable &&
        IsSeparate(program, parameter.chunk)) {
      chunks.insert(parameter.chunk + static_cast<uint32_t>(program.chunk_units.size()));
    }
  }
  return {chunks.begin(), chunks.end()};
}

uint64_t ExtraUnits(const SimulatedProgram& program, int rank, size_t micro_batch) {
  if (!program.grows || micro_batch == 0) return 0;
  const uint32_t mixed =
      (program.seed + static_cast<uint32_t>(rank) * 7 + static_cast<uint32_t>(micro_batch) * 131) *
      2654435761u;
  return (mixed >> 16) % 4 == 0 ? 1 + (mixed >> 20) % 3 : 0;
}

SimulatedProgram MakeRandomProgram(uint32_t seed) { return Maker(seed).Make(); }

}  // namespace geminid::zero
