/** The same answer, that calls back when its body was read to the end, broke off, or is not wanted any more. */
export function whenRead(response: Response, body: ReadableStream<Uint8Array>, callback: () => void): Response {
  const reader = body.getReader()
  const stream = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read()
        if (!done) return controller.enqueue(value)
        controller.close()
      } catch (error) {
        controller.error(error)
      }
      callback()
    },
    async cancel(reason) {
      callback()
      await reader.cancel(reason)
    },
  })
  return new Response(stream, response)
}
