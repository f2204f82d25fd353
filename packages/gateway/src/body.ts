import { InvalidInputError, SluiceError } from 'sluice/internal'

/** The default maximum of a body: 1 MiB, as in Fastify. */
export const DEFAULT_MAX_BODY_BYTES = 1_048_576

/** Thrown when the body of a request is too long: 413. The rest of it is not read. */
export class BodyTooLargeError extends InvalidInputError {
  constructor(readonly maxBodyBytes: number) {
    super(`the body must not be longer than ${maxBodyBytes} bytes`)
  }
}

/** Thrown when the caller disconnected before the whole body had arrived. No response is needed. */
export class CallerGoneError extends SluiceError {
  constructor(options?: ErrorOptions) {
    super('the caller disconnected before the request was read', options)
  }
}

/** Collects the parts of a body, up to a maximum. */
export class BodyBytes {
  readonly #maxBytes: number
  readonly #parts: Uint8Array[] = []
  #length = 0

  /**
   * @param announced the field Content-Length
   * @throws BodyTooLargeError if more is announced than allowed
   */
  constructor(maxBytes: number, announced: string | undefined) {
    this.#maxBytes = maxBytes
    if (announced !== undefined && Number(announced) > maxBytes) throw new BodyTooLargeError(maxBytes)
  }

  get length(): number {
    return this.#length
  }

  /** @throws BodyTooLargeError */
  push(part: Uint8Array): void {
    this.#length += part.byteLength
    if (this.#length > this.#maxBytes) throw new BodyTooLargeError(this.#maxBytes)
    this.#parts.push(part)
  }

  joined(): Buffer {
    const [only] = this.#parts
    if (only instanceof Buffer && this.#parts.length === 1) return only
    return Buffer.concat(this.#parts, this.#length)
  }
}

/** @throws InvalidInputError */
export function checkMaxBodyBytes(value: number): number {
  if (Number.isSafeInteger(value) && value >= 0) return value
  throw new InvalidInputError(`maxBodyBytes must be a whole number >= 0; got ${String(value)}`)
}
