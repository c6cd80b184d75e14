// Writes a step as a line of JSON or as an event of TensorBoard. Pure.
//
// An event file is a sequence of records: the length of the data as 8 bytes, its checksum, the
// data, its checksum, all little-endian. A checksum is a masked CRC-32C (rotated, plus a constant),
// as record_writer.py has it. The data is a protobuf Event. Sources:
// github.com/tensorflow/tensorboard, tensorboard/compat/proto/{event,summary}.proto and
// summary/writer/record_writer.py.
#ifndef GEMINID_TRAINING_LOGS_FORMATS_H_
#define GEMINID_TRAINING_LOGS_FORMATS_H_

#include <string>

#include "absl/time/time.h"
#include "training/logs/step_record.h"

namespace geminid::trainer {

// One JSON object and a line feed. A number that is not finite is null.
std::string JsonLine(const StepRecord& record);

// The record that begins an event file.
std::string EventFileStart(absl::Time time);
// The record of a step: its numbers as scalars, by tags such as "loss/train".
std::string StepEvent(const StepRecord& record);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_FORMATS_H_
