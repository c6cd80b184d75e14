#ifndef GEMINID_TESTS_KERNELS_FOR_EACH_TARGET_H_
#define GEMINID_TESTS_KERNELS_FOR_EACH_TARGET_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "hwy/targets.h"

namespace geminid::kernels {

// Runs `body` once for every instruction set that this machine supports, and forces the dispatch to
// it. The kernels have code for a subset of these. For the others the dispatch takes the next worse
// one.
template <typename Body>
void ForEachTarget(Body body) {
  const auto choose = [](int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  choose(0);
  const int64_t supported = hwy::SupportedTargets();
  // A lower bit is a better instruction set. Each round removes the best one.
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t best = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(best));
    choose(rest);
    body();
  }
  choose(0);
}

}  // namespace geminid::kernels

#endif  // GEMINID_TESTS_KERNELS_FOR_EACH_TARGET_H_
