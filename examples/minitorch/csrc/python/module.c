/* minitorch._C: the libraries as functions over buffers of float32. Sizes are checked here, shapes in Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <minitorch/c10.h>

#ifdef USE_NUMPY
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#endif
#ifdef USE_ROCM
#include "HIPContext.h"
#include "HIPOps.h"
#endif

static size_t floats(const Py_buffer* view) { return (size_t)view->len / sizeof(float); }

static PyObject* add(PyObject* self, PyObject* args) {
  Py_buffer a, b;
  PyObject* out = NULL;
  if (!PyArg_ParseTuple(args, "y*y*", &a, &b)) return NULL;
  if (a.len != b.len)
    PyErr_Format(PyExc_ValueError, "buffers of %zd and %zd bytes", a.len, b.len);
  else if ((out = PyBytes_FromStringAndSize(NULL, a.len)))
    mini_add(a.buf, b.buf, (float*)PyBytes_AS_STRING(out), floats(&a));
  PyBuffer_Release(&a);
  PyBuffer_Release(&b);
  return out;
}

static PyObject* matmul(PyObject* self, PyObject* args) {
  Py_buffer a, b;
  Py_ssize_t m, k, n;
  PyObject* out = NULL;
  if (!PyArg_ParseTuple(args, "y*y*nnn", &a, &b, &m, &k, &n)) return NULL;
  if (m < 0 || k < 0 || n < 0 || floats(&a) != (size_t)(m * k) || floats(&b) != (size_t)(k * n))
    PyErr_Format(PyExc_ValueError, "buffers do not hold %zd x %zd and %zd x %zd numbers", m, k, k, n);
  else if ((out = PyBytes_FromStringAndSize(NULL, m * n * (Py_ssize_t)sizeof(float))))
    mini_matmul(a.buf, b.buf, (float*)PyBytes_AS_STRING(out), m, k, n);
  PyBuffer_Release(&a);
  PyBuffer_Release(&b);
  return out;
}

static PyObject* uniform(PyObject* self, PyObject* args) {
  unsigned long long seed;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(args, "Kn", &seed, &count)) return NULL;
  PyObject* out = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(float));
  if (out) mini_rand(seed, (float*)PyBytes_AS_STRING(out), (size_t)count);
  return out;
}

static PyObject* version(PyObject* self, PyObject* unused) { return PyUnicode_FromString(mini_version()); }

#ifdef USE_NUMPY
static PyObject* to_numpy(PyObject* self, PyObject* args) {
  Py_buffer data;
  npy_intp shape[2];
  PyObject* out = NULL;
  /* Here and not at import: the package works without NumPy. */
  if (!PyArray_API && _import_array() < 0) return NULL;
  if (!PyArg_ParseTuple(args, "y*nn", &data, &shape[0], &shape[1])) return NULL;
  if (floats(&data) != (size_t)(shape[0] * shape[1]))
    PyErr_Format(PyExc_ValueError, "the buffer does not hold %zd x %zd numbers", shape[0], shape[1]);
  else if ((out = PyArray_SimpleNew(2, shape, NPY_FLOAT32)))
    memcpy(PyArray_DATA((PyArrayObject*)out), data.buf, (size_t)data.len);
  PyBuffer_Release(&data);
  return out;
}
#endif

#ifdef USE_ROCM
static PyObject* hip_status(PyObject* self, PyObject* unused) {
  int count;
  int code = mini_hip_device_count(&count);
  return Py_BuildValue("iis", code, count, mini_hip_error_string(code));
}

static PyObject* hip_has_profiler(PyObject* self, PyObject* unused) {
  return PyBool_FromLong(mini_hip_has_profiler());
}

static PyObject* hip_result(int code, PyObject* out) {
  if (code == 0) return out;
  Py_XDECREF(out);
  const char* reason = code < 0 ? "rocBLAS failed" : mini_hip_error_string(code);
  return PyErr_Format(PyExc_RuntimeError, "HIP error %d: %s", code, reason);
}

/* op(a, b) on the device with a result of `count` numbers; m, k, n are 0 for an addition. */
static PyObject* hip_binary(const Py_buffer* a, const Py_buffer* b, size_t m, size_t k, size_t n, size_t count) {
  float *x = NULL, *y = NULL, *z = NULL;
  PyObject* out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(float)));
  if (!out) return NULL;
  float* host = (float*)PyBytes_AS_STRING(out);
  memset(host, 0, count * sizeof(float));
  int code = mini_hip_to_device(a->buf, &x, floats(a));
  if (!code) code = mini_hip_to_device(b->buf, &y, floats(b));
  if (!code) code = mini_hip_to_device(host, &z, count);
  if (!code) code = k ? mini_hip_matmul(x, y, z, m, k, n) : mini_hip_add(x, y, z, count);
  if (!code) code = mini_hip_to_host(z, host, count);
  mini_hip_free(x);
  mini_hip_free(y);
  mini_hip_free(z);
  return hip_result(code, out);
}

static PyObject* hip_add(PyObject* self, PyObject* args) {
  Py_buffer a, b;
  if (!PyArg_ParseTuple(args, "y*y*", &a, &b)) return NULL;
  PyObject* out = NULL;
  if (a.len != b.len)
    PyErr_Format(PyExc_ValueError, "buffers of %zd and %zd bytes", a.len, b.len);
  else
    out = hip_binary(&a, &b, 0, 0, 0, floats(&a));
  PyBuffer_Release(&a);
  PyBuffer_Release(&b);
  return out;
}

static PyObject* hip_matmul(PyObject* self, PyObject* args) {
  Py_buffer a, b;
  Py_ssize_t m, k, n;
  if (!PyArg_ParseTuple(args, "y*y*nnn", &a, &b, &m, &k, &n)) return NULL;
  PyObject* out = NULL;
  if (m < 0 || k < 1 || n < 0 || floats(&a) != (size_t)(m * k) || floats(&b) != (size_t)(k * n))
    PyErr_Format(PyExc_ValueError, "buffers do not hold %zd x %zd and %zd x %zd numbers", m, k, k, n);
  else
    out = hip_binary(&a, &b, m, k, n, (size_t)(m * n));
  PyBuffer_Release(&a);
  PyBuffer_Release(&b);
  return out;
}

static PyObject* hip_sum(PyObject* self, PyObject* args) {
  Py_buffer a;
  float *x = NULL, sum = 0;
  if (!PyArg_ParseTuple(args, "y*", &a)) return NULL;
  int code = mini_hip_to_device(a.buf, &x, floats(&a));
  if (!code) code = mini_hip_sum(x, floats(&a), &sum);
  mini_hip_free(x);
  PyBuffer_Release(&a);
  return hip_result(code, code ? NULL : PyFloat_FromDouble(sum));
}
#endif

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS, "add(a, b): the sum of two buffers"},
    {"matmul", matmul, METH_VARARGS, "matmul(a, b, m, k, n): the product of two matrices"},
    {"rand", uniform, METH_VARARGS, "rand(seed, count): uniform numbers"},
    {"version", version, METH_NOARGS, "the version compiled into libmini_c10"},
#ifdef USE_NUMPY
    {"to_numpy", to_numpy, METH_VARARGS, "to_numpy(data, rows, columns): an array"},
#endif
#ifdef USE_ROCM
    {"hip_status", hip_status, METH_NOARGS, "the code, the number of devices and the message of hipGetDeviceCount"},
    {"hip_has_profiler", hip_has_profiler, METH_NOARGS, "whether libroctx64.so can be opened"},
    {"hip_add", hip_add, METH_VARARGS, "add on the GPU"},
    {"hip_matmul", hip_matmul, METH_VARARGS, "matmul on the GPU, by rocBLAS"},
    {"hip_sum", hip_sum, METH_VARARGS, "the sum of a buffer, on the GPU"},
#endif
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "minitorch._C", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&definition); }
