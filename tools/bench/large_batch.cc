// large_batch [picture.svg]: trains with LAMB and LARS at a batch of 512 and at 16 times that, each
// with its paper's scaling of the learning rate. Prints the losses and draws the curves.
// Deterministic. Exits 1 if a large batch ends more than 2 % above its small one; the smallest form
// has too few steps to tell.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tools/bench/large_batch_experiment.h"
#include "tools/bench/size.h"

int main(int argc, char** argv) {
  using namespace geminid::bench;
  const size_t kSmallBatch = Size(512, 32), kLargeBatch = 16 * kSmallBatch;
  const size_t kSamples = Size(1 << 16, 1 << 11), kEpochs = Size(40, 3);
  constexpr double kTolerance = 0.02;
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: large_batch [picture.svg]\n");
    return 2;
  }
  const LargeBatchProblem problem(kSamples);
  std::vector<LargeBatchCurve> curves;
  bool met = true;
  std::printf("%-6s %6s %6s %10s %10s %10s %8s\n", "", "batch", "steps", "peak rate", "first loss",
              "last loss", "ratio");
  for (const auto& [name, make] : {std::pair("LAMB", &LambRun), std::pair("LARS", &LarsRun)}) {
    double small = 0;
    for (const size_t batch : {kSmallBatch, kLargeBatch}) {
      const LargeBatchResult r = Train(problem, make(batch, kSmallBatch, kEpochs));
      if (batch == kSmallBatch) small = r.last_loss;
      const double ratio = r.last_loss / small;
      met = met && !r.curve.empty() && (Smallest() || ratio < 1 + kTolerance);
      std::printf("%-6s %6zu %6zu %10.4f %10.4f %10.4f %8.4f\n", name, batch, r.steps,
                  r.learning_rate, r.first_loss, r.last_loss, ratio);
      curves.push_back({std::string(name) + ", batch " + std::to_string(batch), r});
    }
  }
  std::printf("the teacher's own loss: %.4f\n", problem.floor);
  if (argc == 2) {
    std::ofstream file(argv[1]);
    file << LargeBatchSvg(curves, problem.floor);
    file.close();
    if (!file) {
      std::fprintf(stderr, "large_batch: cannot write %s\n", argv[1]);
      return 1;
    }
  }
  return met ? 0 : 1;
}
