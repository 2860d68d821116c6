/* Loads an exported model as TF Serving's loader does, without Python, and translates its arguments.
 *
 * usage: load_saved_model TEXT_OPS.so EXPORT/1 INPUT_OP OUTPUT_OP OUTPUT_INDEX LINE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 7) return fprintf(stderr, "too few arguments\n"), 2;
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(argv[1], status);
  check(status, "TF_LoadLibrary");

  TF_Graph* graph = TF_NewGraph();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[2], tags, 1, graph, NULL, status);
  check(status, "TF_LoadSessionFromSavedModel");

  const int64_t count = argc - 6;
  TF_Tensor* lines = TF_AllocateTensor(TF_STRING, &count, 1, count * sizeof(TF_TString));
  TF_TString* strings = TF_TensorData(lines);
  for (int64_t i = 0; i < count; ++i) {
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], argv[6 + i], strlen(argv[6 + i]));
  }
  TF_Output input = {TF_GraphOperationByName(graph, argv[3]), 0};
  TF_Output output = {TF_GraphOperationByName(graph, argv[4]), atoi(argv[5])};
  if (!input.oper || !output.oper) return fprintf(stderr, "no such operation\n"), 1;
  TF_Tensor* result = NULL;
  TF_SessionRun(session, NULL, &input, &lines, 1, &output, &result, 1, NULL, 0, NULL, status);
  check(status, "TF_SessionRun");

  const TF_TString* translations = TF_TensorData(result);
  for (int64_t i = 0; i < TF_Dim(result, 0); ++i)
    printf("%.*s\n", (int)TF_StringGetSize(&translations[i]), TF_StringGetDataPointer(&translations[i]));
  return 0;
}
