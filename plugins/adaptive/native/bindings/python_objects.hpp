// Reads the engine's Python objects: requests, drafts, spans and what they decided.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "estimation/draft.hpp"

namespace adaptive {

namespace nb = nanobind;

// An attribute's name, made once.
class Name {
   public:
    explicit Name(const char* text) : object_(PyUnicode_InternFromString(text)) {}
    nb::object of(nb::handle object) const {
        PyObject* value = PyObject_GetAttr(object.ptr(), object_);
        if (value == nullptr) throw nb::python_error();
        return nb::steal(value);
    }

   private:
    PyObject* object_;  // lives as long as the module
};

int64_t as_int(nb::handle number);
double as_double(nb::handle number);
std::string as_text(nb::handle text);
std::size_t size_of(nb::handle sequence);

// Calls `take` with every item of a list or tuple.
template <typename Take>
void for_each(nb::handle sequence, Take take) {
    bool is_list = PyList_Check(sequence.ptr());
    std::size_t count = size_of(sequence);
    for (std::size_t i = 0; i < count; ++i) {
        Py_ssize_t at = static_cast<Py_ssize_t>(i);
        PyObject* item = is_list ? PyList_GetItem(sequence.ptr(), at) : PyTuple_GetItem(sequence.ptr(), at);
        if (item == nullptr) throw nb::python_error();
        take(nb::handle(item));
    }
}

// Numbers the drafters by name, and each by the class of its requests' temperature.
class Sources {
   public:
    int number_of(nb::handle name, int warmth);

   private:
    std::unordered_map<std::string, int> numbers_;
};

// All but the tokens, which only learning needs.
void read_shape(nb::handle object, Sources& sources, int warmth, Draft& draft);
void read_draft(nb::handle object, Sources& sources, int warmth, Draft& draft);

}  // namespace adaptive
