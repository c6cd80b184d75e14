#include "daemon/memory/admission.h"

#include <gtest/gtest.h>

#include <utility>

namespace geminid::memory {
namespace {

uint64_t Hundred() { return 100; }

TEST(Admission, TwoThatFitOnlyAlone_TheSecondIsRefused) {
  Admission admission;
  Admission::Hold first = admission.Admit(60, 10, Hundred);
  ASSERT_TRUE(first);
  EXPECT_FALSE(admission.Admit(31, 10, Hundred));
  EXPECT_TRUE(admission.Admit(30, 10, Hundred));
  EXPECT_FALSE(admission.Admit(91, 10, Hundred));
}

TEST(Admission, WhatExists_IsNoLongerCountedTwice) {
  Admission admission;
  Admission::Hold first = admission.Admit(60, 0, Hundred);
  first.Made(50);
  EXPECT_EQ(admission.promised_bytes(), 10u);
  EXPECT_TRUE(admission.Admit(40, 0, [] { return uint64_t{50}; }));
  first.Made(50);  // no more than the promise
  EXPECT_EQ(admission.promised_bytes(), 0u);
}

TEST(Admission, EndOfAHold_GivesItsRestBack) {
  Admission admission;
  {
    Admission::Hold first = admission.Admit(60, 0, Hundred);
    Admission::Hold moved = std::move(first);
    EXPECT_FALSE(first);
    EXPECT_EQ(admission.promised_bytes(), 60u);
  }
  EXPECT_EQ(admission.promised_bytes(), 0u);
}

TEST(Admission, MoreHeadroomThanMemory_RefusesWithoutOverflow) {
  Admission admission;
  EXPECT_FALSE(admission.Admit(1, 200, Hundred));
  EXPECT_FALSE(admission.Admit(~uint64_t{0}, 0, Hundred));
}

}  // namespace
}  // namespace geminid::memory
