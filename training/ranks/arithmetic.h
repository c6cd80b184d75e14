// Describes how the host computes, for the report.
#ifndef GEMINID_TRAINING_RANKS_ARITHMETIC_H_
#define GEMINID_TRAINING_RANKS_ARITHMETIC_H_

#include <string>

#include "geminid/zero.h"

namespace geminid::trainer {

// Whether the processor multiplies the type itself; false for bf16 on a GPU, which is not asked.
bool IsNative(zero::DataType type, bool on_gpu);

// "bf16 native", "bf16 emulated", "fp32".
std::string Arithmetic(zero::DataType type, bool native);

// The level of instruction sets in use, as base::Name has it.
std::string InstructionSet();

// Whether GEMINID_MAX_ISA limits it, and a line that says so.
bool InstructionSetIsLimited();
std::string LimitOfInstructionSets();

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_ARITHMETIC_H_
