"""KEDA façade: any Penstock scaler behind a ScaledObject, as an external scaler over gRPC."""
