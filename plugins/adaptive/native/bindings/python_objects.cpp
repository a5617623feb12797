#include "bindings/python_objects.hpp"

#include <numeric>

#include "planning/planner.hpp"

namespace adaptive {

int64_t as_int(nb::handle number) {
    long long value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

double as_double(nb::handle number) {
    double value = PyFloat_AsDouble(number.ptr());
    if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

std::string as_text(nb::handle text) {
    Py_ssize_t size = 0;
    const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (utf8 == nullptr) throw nb::python_error();
    return {utf8, static_cast<std::size_t>(size)};
}

std::size_t size_of(nb::handle sequence) {
    Py_ssize_t count = PyObject_Size(sequence.ptr());
    if (count < 0) throw nb::python_error();
    return static_cast<std::size_t>(count);
}

int Sources::number_of(nb::handle name, int warmth) {
    int number = numbers_.emplace(as_text(name), static_cast<int>(numbers_.size())).first->second;
    return number * kWarmths + warmth;
}

void read_shape(nb::handle object, Sources& sources, int warmth, Draft& draft) {
    static const Name tokens("tokens"), parents("parents"), survival("survival"), source("source");
    draft.tokens.clear();
    draft.parents.clear();
    draft.stated.clear();
    draft.source = sources.number_of(source.of(object), warmth);
    std::size_t count = size_of(tokens.of(object));
    nb::object links = parents.of(object);
    draft.is_chain = links.is_none();
    if (draft.is_chain) {
        draft.parents.resize(count);
        std::iota(draft.parents.begin(), draft.parents.end(), kRoot);
    } else {
        for_each(links, [&](nb::handle parent) { draft.parents.push_back(static_cast<int32_t>(as_int(parent))); });
    }
    nb::object stated = survival.of(object);
    if (!stated.is_none()) for_each(stated, [&](nb::handle each) { draft.stated.push_back(as_double(each)); });
    bool valid = draft.parents.size() == count && (draft.stated.empty() || draft.stated.size() == count);
    for (int32_t node = 0; valid && node < draft.size(); ++node)
        valid = draft.parents[node] >= kRoot && draft.parents[node] < node;
    if (!valid) throw nb::value_error("a draft's parents and survival must be as many as its tokens, parents first");
}

void read_draft(nb::handle object, Sources& sources, int warmth, Draft& draft) {
    static const Name tokens("tokens");
    read_shape(object, sources, warmth, draft);
    for_each(tokens.of(object), [&](nb::handle token) { draft.tokens.push_back(as_int(token)); });
}

}  // namespace adaptive
