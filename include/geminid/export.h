// Marks symbols that libgeminid exports; all others are hidden.
#ifndef GEMINID_EXPORT_H_
#define GEMINID_EXPORT_H_

#define GEMINID_EXPORT __attribute__((visibility("default")))

#endif  // GEMINID_EXPORT_H_
