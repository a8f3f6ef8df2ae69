export { Ctrlz } from "./client.js";
export type { CallSettings, ClientOptions, Params, Result } from "./client.js";
export {
  BinaryNotFoundError,
  ClosedError,
  CtrlzError,
  ProtocolError,
  RpcError,
  ServerEndedError,
  TimeoutError,
} from "./errors.js";
export type { Outcome } from "./errors.js";
export { pathFromBytes } from "./path.js";
export { isDisabled, pathBytes } from "./place.js";
export type { PlaceOptions } from "./place.js";
export { Session, Step } from "./session.js";
export type { About, SessionOptions, UndoSettings } from "./session.js";
export { Snapshot } from "./snapshot.js";
export type { Patch, RestoreSettings, SnapshotOptions, TrackSettings } from "./snapshot.js";
export type { FileDiff, RestoreReport, UndoReport } from "./wire.js";
export type * as wire from "./wire.js";
